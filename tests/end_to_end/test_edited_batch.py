"""The batch of a real job is edited by command: its script takes it, and nothing restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from brain.types.plan import PlanState
from tests.end_to_end.needs import command
from tests.harness import FAST, Brain, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    home = tmp_path_factory.mktemp("batch")
    with running(home / "home", "--slots=2", settings=FAST) as brain:
        yield brain


def test_a_batch_is_edited_while_it_trains_and_rolled_back(brain: Brain):
    job = brain.submit(
        "tuned.py",
        name="tuned",
        batch={"tune": True, "globalSize": 8, "globalMax": 64},
        optimizeMode="manual",
    )

    def taken(examples: int) -> None:
        """Wait until the script makes steps of so many examples."""
        path: Path = brain.work("tuned") / "batches"
        brain.until(
            f"steps of {examples} examples",
            90,
            job,
            lambda _: path.exists() and path.read_text().splitlines()[-1:] == [str(examples)],
        )

    taken(8)
    first = brain.until("a world", 60, job, lambda detail: detail.world)
    said = command(brain, "edit", job, "--batch", "32")
    assert "The new batch applies when the script next asks for its batch." in said
    assert "batch 8 → 32" in said
    taken(32)
    plan = brain.until(
        "a verdict",
        90,
        job,
        lambda d: d.job.plan and d.job.plan.state is PlanState.VERIFIED and d.job.plan,
    )
    assert plan.outcome.downtime_seconds == 0
    assert plan.outcome.measured is not None
    command(brain, "rollback", job)
    taken(8)
    last = brain.detail(job).world
    assert last is not None
    assert last.epoch == first.epoch, "nothing was restarted"
