"""``fully_shard`` with torch's own asynchronous checkpoint is resized by ``brain up``."""

import pytest

from brain import calls
from brain.types.world import World
from brain.views import JobDetail, ResizeRequest
from tests.harness import Brain, running

pytestmark = pytest.mark.slow

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("dcp"), "--slots=4") as brain:
        yield brain


def resized(brain: Brain, job: str, replicas: int) -> World:
    """Ask for a size and wait until a world of it steps and its plan is applied."""
    brain.send(calls.resize(job, ResizeRequest(replicas=replicas)))

    def stepping(detail: JobDetail) -> World | None:
        world = detail.world
        there = world is not None and world.stepping_at is not None
        return world if there and world.replicas == replicas else None

    world = brain.until(f"a world of {replicas}", 100, job, stepping)
    brain.until("an applied plan", 30, job, lambda d: d.job.plan and d.job.plan.state == "Applied")
    return world


def test_sharded_training_that_saves_asynchronously_is_resized_without_loss(brain: Brain):
    replicas = {"min": 1, "max": 2}
    job = brain.submit("official_recipe.py", "async_save", name="recipe", replicas=replicas)
    saves = brain.work("recipe") / "checkpoints"
    brain.until("two saves", 90, job, lambda _: len(list(saves.glob("*/.metadata"))) > 1)

    grown, shrunk = resized(brain, job, 2), resized(brain, job, 1)

    assert (grown.steps_redone, shrunk.steps_redone) == (0, 0)
    (brain.work("recipe") / "enough").touch()
    assert brain.finished(job).job.state == "Succeeded"
