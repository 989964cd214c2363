"""torch.distributed.checkpoint in its official form: a planned change loses no step."""

from pathlib import Path

import pytest

from brain.types.world import WorldEvent
from tests.launcher.elastic import desired, eventually, job

pytest.importorskip("torch")

RECIPE = Path(__file__).parent.parent / "scripts" / "official_recipe.py"


@pytest.mark.parametrize("how", [pytest.param("save", marks=pytest.mark.slow), "async_save"])
def test_a_planned_change_of_the_official_recipe_loses_no_step(tmp_path: Path, how: str) -> None:
    with job(tmp_path, how, first=desired(1), script=RECIPE.read_text()) as it:
        it.start()
        eventually(lambda: list(it.work.glob("checkpoints/*/.metadata")), "a first checkpoint", 100)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        grown = it.brain.told(WorldEvent.STEPPING, 100, generation=1)
        (it.work / "enough").touch()
        eventually(lambda: not any(agent.poll() is None for agent in it.agents.values()), "its end")

    failed = [each for each in it.brain.reports() if each.event is WorldEvent.CHANGE_FAILED]
    assert not failed
    assert (len(grown.members), grown.steps_redone) == (2, 0)
