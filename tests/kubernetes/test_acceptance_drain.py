"""A node is drained under a job of real agents: kubectl ends, and no step is lost."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.test_acceptance import (
    NAMESPACE,
    Cluster,
    article,
    cluster,
    rights,
)

pytestmark = pytest.mark.slow

_STEP = re.compile(r"^step (\d+)  loss", re.MULTILINE)


def said(it: Cluster) -> list[str]:
    """What each pod said."""
    return [path.read_text(errors="replace") for path in it.home.parent.glob("pods/**/main.log")]


def steps(it: Cluster) -> list[int]:
    """Steps that were told, in all worlds."""
    return [int(step) for text in said(it) for step in _STEP.findall(text)]


def beginnings(it: Cluster) -> int:
    """How many worlds of two workers began."""
    return sum(text.count(": 2 workers,") for text in said(it))


def nodes(it: Cluster) -> set[str]:
    """Nodes on which pods run."""
    return {
        pod["spec"]["nodeName"]
        for pod in it.server.objects("pods", "", NAMESPACE)
        if (pod.get("status") or {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.timeout(900)
def test_a_drain_ends_and_no_step_is_lost(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        if not it.server.collects:
            pytest.skip("nobody counts what disruption budgets allow here")
        it.start_brain()
        it.kubectl("create", "namespace", NAMESPACE)
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        it.start_operator()
        made = article(tmp_path)
        worker = made["spec"]["replicaSpecs"]["worker"]
        worker["replicas"] = 2
        command = worker["template"]["spec"]["containers"][0]["command"]
        # A step is told, then saved: one that was lost is told twice.
        command[2] = command[2].replace("--save-every 5", "--save-every 1")
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
        it.until("two replicas step, and save", lambda: max(steps(it), default=0) >= 10)
        assert nodes(it) == {"n0"}

        it.kubectl("drain", "n0", "--delete-emptydir-data", "--timeout=240s")

        assert nodes(it) == {"n1"}
        it.until("two replicas step elsewhere", lambda: it.trains(2) and beginnings(it) > 1)
        last = max(steps(it))
        it.until("they go on", lambda: max(steps(it)) > last)
        told = steps(it)
        assert sorted(told) == list(range(1, max(told) + 1)), "a step was made twice, or skipped"
