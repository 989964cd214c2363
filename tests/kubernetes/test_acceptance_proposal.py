"""The guide's job, from ``kubectl apply`` to a plan that Brain proposes and a person approves."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes import test_acceptance
from tests.kubernetes.clusters import here
from tests.kubernetes.test_acceptance import FAST, NAMESPACE, SCRIPT, Cluster, cluster, rights
from tests.kubernetes.test_guide_kubernetes import DOCUMENTS


def guides_job(directory: Path) -> dict[str, Any]:
    """``digits.yaml``; only the script is another one, and lies elsewhere."""
    made: dict[str, Any] = yaml.safe_load(DOCUMENTS["digits.yaml"])
    checkpoint = str(directory / "last.pt")
    made["metadata"]["namespace"] = NAMESPACE
    made["spec"]["checkpoint"]["path"] = checkpoint
    template = made["spec"]["replicaSpecs"]["worker"]["template"]
    command = template["spec"]["containers"][0]["command"]
    template["spec"]["containers"][0]["command"] = [
        *(word for word in command if word != "train.py"),
        *(str(SCRIPT), str(directory / "end"), "--batch", "64", "--save-every", "5"),
        *("--checkpoint", checkpoint),
    ]
    template["spec"] = here(template["spec"])
    return made


def phase(it: Cluster) -> str:
    """That of the one plan that there is; empty: there is none."""
    return "".join(str((plan.get("status") or {}).get("phase", "")) for plan in it.plans()[:1])


def approve(it: Cluster, plan: str) -> None:
    """Approve it, and what Brain made of it while a busy machine changed the job's speed."""
    for _ in range(5):
        try:
            it.says("approve", plan)
        except AssertionError as refused:
            renewed = re.search(r"approve (digits/1@\d+)", str(refused))
            if renewed is None:
                raise
            plan = renewed[1]
        else:
            return
    raise AssertionError(f"{plan} is renewed all the time")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.timeout(900)
def test_a_plan_that_brain_proposes_is_approved_and_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two more replicas start as slowly as a busy machine lets them.
    monkeypatch.setattr(test_acceptance, "FAST", {**FAST, "patience_seconds": 300})
    with cluster(tmp_path) as it:
        it.start_brain()
        it.kubectl("create", "namespace", NAMESPACE)
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        it.start_operator()
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(guides_job(tmp_path)))
        it.until("two replicas train", lambda: it.trains(2))
        epoch = it.epoch

        it.until("a plan is proposed", lambda: phase(it) == "Proposed")
        assert "digits/1" in it.says("plans", "digits")
        assert "brain approve digits" in it.says("explain", "digits")
        approve(it, "digits/1")

        # One measured size says that more is faster, not how much: all that is allowed is tried.
        it.until("four replicas train", lambda: it.trains(4, after=epoch))
        assert it.plans()[0]["status"]["approval"]["by"] == "admin"
        assert it.status()["scalePlan"] == "digits-plan-1"
