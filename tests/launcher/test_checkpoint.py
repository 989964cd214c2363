"""launcher.checkpoint: what was saved in one world is what the next one loads, to the bit."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ram_checkpoint.sharing import buddy_of
from launcher.values.ram_checkpoint import parts
from launcher.values.ram_checkpoint.parts import StepPart
from tests import forks
from tests.launcher.building import a_world, soon
from tests.launcher.remembering import TOKEN, TOLD, Agent, Company, company

TRAIN = """
import torch.distributed as dist
torch.manual_seed(0)
dist.init_process_group('gloo')
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
"""
DDP = (
    TRAIN
    + """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
def states():
    return dict(model=model.state_dict(), optimizer=optimizer.state_dict())
"""
)
FSDP = (
    TRAIN
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
fully_shard(model, mesh=init_device_mesh('cpu', (size,)))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
def states():
    kept, of_optimizer = get_state_dict(model, optimizer)
    return dict(model=kept, optimizer=of_optimizer)
def set_states(state):
    kept, of_optimizer = state['model'], state['optimizer']
    set_state_dict(model, optimizer, model_state_dict=kept, optim_state_dict=of_optimizer)
"""
)
STEPS = """
for step in range(1, 4):
    optimizer.zero_grad()
    model(torch.full((4, 64), float(step))).pow(2).mean().backward()
    optimizer.step()
    checkpoint.save(dict(states(), step=step), step)
print(print_of(states()))
dist.barrier()
"""
LOAD_DDP = """
state = checkpoint.load()
model.load_state_dict(state['model']); optimizer.load_state_dict(state['optimizer'])
print(print_of(states()), checkpoint.step(), state['step'])
dist.barrier()
"""
LOAD_FSDP = """
state = checkpoint.load(into=dict(states(), step=0))
set_states(state)
print(print_of(states()), checkpoint.step(), state['step'])
dist.barrier()
"""


@pytest.mark.parametrize(
    ("begin", "load", "before", "after"),
    [
        (DDP, LOAD_DDP, (1, 1), (1, 1)),
        (DDP, LOAD_DDP, (2,), (1, 1)),
        (FSDP, LOAD_FSDP, (1, 1), (1, 1)),
        (FSDP, LOAD_FSDP, (1, 1), (1,)),
        (FSDP, LOAD_FSDP, (1,), (1, 1)),
    ],
)
def test_the_next_world_goes_on_from_the_bits_of_the_last(
    begin: str, load: str, before: tuple[int, ...], after: tuple[int, ...], tmp_path: Path
) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            saved = await agents.run(agents.world(*before), begin + STEPS)
            loaded = await agents.run(agents.world(*after), begin + load)
            assert {each.split()[0] for each in loaded} == set(saved)
            assert {tuple(each.split()[1:]) for each in loaded} == {("3", "3")}

    asyncio.run(story())


def test_a_state_that_is_the_same_everywhere_loads_with_plain_torch(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 1) as agents:
            saved = await agents.run(agents.world(2), DDP + STEPS)
        lines = (
            "state = torch.load('checkpoint/step-3.pt'); state.pop('step')\nprint(print_of(state))"
        )
        assert plainly(lines, tmp_path) == saved[0]
        assert sorted(os.listdir(tmp_path / "checkpoint"))[-1] == "step-3.pt"

    asyncio.run(story())


def test_pieces_load_with_plain_torch(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            saved = await agents.run(agents.world(1, 1), FSDP + STEPS)
        lines = """
import torch.distributed.checkpoint as dcp
state = dict(states(), step=0)
dcp.load(state, checkpoint_id='checkpoint/step-3')
set_states(state)
print(print_of(states()))
"""
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        assert plainly(FSDP + lines, tmp_path, alone) == saved[0]

    asyncio.run(story())


def test_a_host_that_is_lost_takes_nothing_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 3) as agents:
            saved = await agents.run(agents.world(1, 1), FSDP + STEPS.replace("step)\np", KEPT))
            await soon(copied(agents))
            gone = agents.here.pop(0)
            loaded = await agents.run(agents.world(1, 1), FSDP + LOAD_FSDP)
            await gone.close()
            assert {each.split()[0] for each in loaded} == set(saved)
            assert not (tmp_path / "checkpoint").exists()

    asyncio.run(story())


#: Saves that stay in memory.
KEPT = "step, storage=False)\np"


async def copied(agents: Company) -> None:
    """Wait until every part of the newest step has a second copy."""
    while True:
        held = [agent.part.held for agent in agents.here[:2]]
        if all(len({part.rank for part in parts_of if part.step == 3}) == 2 for parts_of in held):
            return
        await asyncio.sleep(0.02)


def test_a_failure_brings_what_was_to_stay_in_memory_to_storage(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 1) as agents:
            save = "checkpoint.save(dict(step=7), 7, storage=False)"
            await agents.run(agents.world(1), save)
            hold = agents.here[0].part.hold
            assert hold is not None
            before = (tmp_path / "checkpoint").exists()
            hold.persist()
            await soon(hold.persisted())
            assert (before, os.listdir(tmp_path / "checkpoint")) == (False, ["step-7.pt"])

    asyncio.run(story())


def test_who_has_not_the_jobs_token_gets_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        from launcher.ram_checkpoint.sharing import PartSharing

        async with company(tmp_path, 1) as agents:
            await agents.run(agents.world(1), "checkpoint.save(dict(step=7), 7)")
            agent = agents.here[0]
            for directory in ("stolen", "own"):
                (tmp_path / directory).mkdir()
            name = agent.config.job
            thief = PartSharing(tmp_path / "stolen", name, TOKEN[::-1])
            owner = PartSharing(tmp_path / "own", name, TOKEN)
            got = [await s.fetch([agent.address], "7-1", "state.pt") for s in (thief, owner)]
            assert got == [False, True]

    asyncio.run(story())


def test_two_jobs_of_one_name_never_share_memory(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "other"]
    for place in places:
        place.mkdir()

    async def story() -> None:
        async with company(places[0], 1) as one, company(places[1], 1) as other:
            for agents, step in ((other, 8), (other, 9), (one, 7)):
                await agents.run(agents.world(1), f"checkpoint.save(dict(step={step}), {step})")

    asyncio.run(story())
    saved = [sorted(os.listdir(place / "checkpoint")) for place in places]
    assert saved[0] == ["step-7.pt"]
    assert saved[1][-1] == "step-9.pt"
    assert "step-7.pt" not in saved[1], "a busy agent may skip step 8 for the newer one"


def test_a_step_is_whole_on_storage_if_one_host_has_no_memory(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            with no_memory(agents.here[1]):
                saved = await agents.run(agents.world(1, 1), FSDP + STEPS)
                assert sorted(os.listdir(tmp_path / "checkpoint")) == ["step-2", "step-3"]
                loaded = await agents.run(agents.world(1, 1), FSDP + LOAD_FSDP)
            assert {each.split()[0] for each in loaded} == set(saved)

    asyncio.run(story())


def test_one_worker_keeps_a_state_even_if_all_have_local_rank_0(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 1) as agents:
            agents.here[0].virtual_local_rank = True
            await agents.run(agents.world(2), "checkpoint.save(dict(step=7), 7, storage=False)")
            assert [part.rank for part in agents.here[0].part.held] == [0]

    asyncio.run(story())


def test_a_file_that_no_agent_had_once_is_fetched_the_next_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 2) as agents:
            await agents.run(agents.world(1), "checkpoint.save(dict(step=7), 7, storage=False)")
            both = agents.world(1, 1)
            hold = agents.here[1].part.hold
            assert hold is not None
            step = hold.root / "steps" / "7-1"
            await soon(there(step / "state.pt"))
            (step / "state.pt").rename(step / "state.pt.nobody")
            loaded = await agents.run(both, "print(checkpoint.load()['step'])")
            assert loaded == ["7", "7"]

    asyncio.run(story())


async def there(path: Path) -> None:
    """Wait until a file is there."""
    while not path.exists():
        await asyncio.sleep(0.01)


def test_without_memory_every_step_goes_to_the_declared_place(tmp_path: Path) -> None:
    async def story() -> None:
        async with company(tmp_path, 1) as agents:
            agents.here[0].place = tmp_path / "declared"
            with no_memory(agents.here[0]):
                assert await agents.run(agents.world(1), SAVE_AND_ASK) == ["Unavailable"]

    asyncio.run(story())
    assert sorted(os.listdir(tmp_path / "declared")) == ["step-1.pt", "step-2.pt"]


#: Then asks for shards at the agent's socket, which this agent does not have.
SAVE_AND_ASK = """
for step in (1, 2): checkpoint.save(dict(step=step), step)
from launcher.data.client import client
try:
    client()
except Exception as cannot:
    print(type(cannot).__name__)
"""


@contextlib.contextmanager
def no_memory(agent: Agent) -> Iterator[None]:
    """Keep an agent from making its directory of shared memory."""
    memory = agent.config.memory
    assert memory is not None
    root = Path(str(memory["directory"]))
    (root / "taken").mkdir(parents=True)
    yield
    shutil.rmtree(root)


def test_without_an_agent_files_are_written_as_always(tmp_path: Path) -> None:
    lines = """
del sys.modules['_brain_memory']
for step in (1, 2, 3):
    checkpoint.save(dict(weights=torch.full((3,), float(step))), step)
print(checkpoint.step(), checkpoint.load()['weights'][0].item(), *sorted(os.listdir('checkpoint')))
"""
    assert plainly(lines, tmp_path) == "3 3.0 step-2.pt step-3.pt"


def test_a_step_counts_only_when_every_part_is_somewhere() -> None:
    def part(step: int, rank: int, epoch: int = 1) -> StepPart:
        return StepPart(
            step=step, epoch=epoch, rank=rank, world=2, path="p", storage=True, accepted=0.0
        )

    newest = parts.complete([part(20, 0), part(20, 1), part(40, 0), part(40, 1, epoch=2)])
    assert newest is not None
    assert newest.step == 20


def test_the_buddy_is_on_another_host_where_there_is_one() -> None:
    members = a_world(1, 1, 1).members
    same = [members[0], members[1]]
    assert buddy_of(same, 10) == members[1]
    assert buddy_of(members[:1], 10) is None


#: Makes and prunes a step without end.
PRUNES = """
import os, shutil, sys
while True:
    os.mkdir(sys.argv[1])
    open(sys.argv[1] + "/part-0", "w").close()
    shutil.rmtree(sys.argv[1])
"""


def test_parts_that_are_pruned_while_others_are_looked_for_are_none(tmp_path: Path) -> None:
    pruning = subprocess.Popen([sys.executable, "-c", PRUNES, str(tmp_path / "step")])
    try:
        while not (tmp_path / "step").exists():
            assert pruning.poll() is None
        assert {parts.found(tmp_path) for _ in range(20000)} == {()}
        assert pruning.poll() is None
    finally:
        pruning.kill()
        pruning.wait()


def plainly(lines: str, directory: Path, environment: dict[str, str] | None = None) -> str:
    """What a process without an agent prints."""
    return forks.run(TOLD + lines, directory, dict(os.environ, TOLD="{}", **(environment or {})))
