"""Steps with pieces on every rank are whole on storage, or fail on every rank."""

import asyncio
import os
from pathlib import Path

from tests.launcher.building import soon
from tests.launcher.remembering import company
from tests.launcher.test_checkpoint import FSDP, KEPT, LOAD_FSDP, STEPS, plainly


def test_a_step_is_whole_on_storage_if_one_rank_cannot_publish_its_part(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            world = agents.world(1, 1)
            agents.here[1].part.asked(None)
            hold = agents.here[1].part.hold
            assert hold is not None
            (hold.root / "steps" / "2-1").touch()  # where its part belongs
            saved = await soon(agents.run(world, FSDP + STEPS.replace("step)\np", KEPT)))
            assert {part.step for part in agents.here[0].part.held if not part.copied} == {1, 3}
            assert os.listdir(tmp_path / "checkpoint") == ["step-2"]
            loaded = await soon(agents.run(agents.world(1, 1), FSDP + LOAD_FSDP))
            assert {each.split()[0] for each in loaded} == set(saved)

    asyncio.run(story())


#: A full memory of rank 1, as its files meet it.
FULL = """
def refuse(event, of):
    if event == 'open' and rank == 1 and '.writing-' in str(of[0]):
        raise OSError(28, 'No space left on device')
sys.addaudithook(refuse)
"""


def test_a_step_is_whole_on_storage_if_the_memory_of_one_rank_is_full(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            saved = await soon(agents.run(agents.world(1, 1), FSDP + FULL + STEPS))
            loaded = await soon(agents.run(agents.world(1, 1), FSDP + LOAD_FSDP))
            assert {each.split()[0] for each in loaded} == set(saved)

    asyncio.run(story())


#: Prints how many more syncs than files came before the last rename, and what follows.
OBSERVED = """
calls = []
def observe(frame, event, called):
    if event == 'c_call' and called in (os.fsync, os.rename):
        calls.append(called.__name__)
sys.setprofile(observe)
checkpoint.save(states(), 1)
sys.setprofile(None)
renamed = len(calls) - 1 - calls[::-1].index('rename')
print(calls[:renamed].count('fsync') - len(os.listdir('checkpoint/step-1')), calls[renamed:])
"""


def test_pieces_are_durable_before_their_step_gets_its_name(tmp_path: Path) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    lines = FSDP + "del sys.modules['_brain_memory']" + OBSERVED
    # Beside each file: the directory that names them.
    assert plainly(lines, tmp_path, alone) == "1 ['rename', 'fsync']"


#: Says how a rank fails that saves directly to storage.
REFUSED = """
del sys.modules['_brain_memory']
try:
    checkpoint.save(states(), 1)
except Exception as error:
    print(type(error).__name__)
"""


def test_every_rank_fails_if_a_sharded_step_cannot_get_its_name(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            (tmp_path / "checkpoint").mkdir()
            (tmp_path / "checkpoint" / "step-1").touch()
            told = await soon(agents.run(agents.world(1, 1), FSDP + REFUSED))
            assert told == ["NotADirectoryError", "Unavailable"]

    asyncio.run(story())
