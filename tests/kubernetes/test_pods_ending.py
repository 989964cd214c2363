"""A pod that is deleted while its script saves at its end: the agent's grace is the kubelet's."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.kubernetes import jobs
from tests.kubernetes.test_acceptance import NAMESPACE, Cluster, cluster, rights

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "scripts" / "counted.py"
#: Longer than a lease, and than the kubelet's own 30 s leave beside a wait for a safe point.
SECONDS = 16


def slow(directory: Path) -> jobs.Object:
    """One replica whose script needs its time at the end."""
    saves = f"--checkpoint={directory / 'counted.pt'}"
    words = [str(SCRIPT), f"--ends-slowly={SECONDS}", "--steps=100000", saves]
    made = jobs.job("brain-run", "--nnodes=1", *words, replicas=1)
    made["metadata"] = {"namespace": NAMESPACE, "name": "slow"}
    return made


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.timeout(400)
def test_a_deleted_pods_script_saves_to_its_end(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        it.start_brain()
        it.kubectl("create", "namespace", NAMESPACE)
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        it.start_operator()
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(slow(tmp_path)))
        it.until("a checkpoint", lambda: (tmp_path / "counted.pt").exists())

        (pod,) = it.pods()
        it.kubectl("delete", "pod", f"slow-edljob-{pod}", "--wait=false")
        it.until("the handler begins", lambda: list(tmp_path.glob("ending-*")))
        it.until("it ends, or its pod", lambda: _ended(tmp_path) or not _there(it, pod))
        assert len(_ended(tmp_path)) == 1


def _ended(directory: Path) -> list[Path]:
    return list(directory.glob("ended-*"))


def _there(it: Cluster, pod: str) -> bool:
    names = (each["metadata"]["name"] for each in it.server.objects("pods", "", NAMESPACE))
    return f"slow-edljob-{pod}" in names
