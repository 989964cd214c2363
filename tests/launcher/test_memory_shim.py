"""Plain torch.save through memory: the file is there at once, storage follows, nothing is lost."""

import asyncio
import json
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest

from launcher.coordinator import pins
from launcher.ram_checkpoint.shared_memory import SharedMemory, new_root
from launcher.values.ram_checkpoint import links
from tests import forks
from tests.launcher.building import soon
from tests.launcher.remembering import Held, ended, holding, lines_of, stop_keeper

SAVE = "torch.save(state(1), 'model.tmp'); os.replace('model.tmp', 'model.pt')\n"
READ = "print(torch.load('model.pt')['step'])\n"


def leftovers(directory: Path) -> list[str]:
    """Names of ours in a directory."""
    return sorted(name for name in os.listdir(directory) if name.startswith(".brain"))


def test_a_file_is_there_for_every_process_before_it_is_on_storage(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            await held.run(SAVE, tmp_path, cold=True)
            in_memory = (tmp_path / "model.pt").is_symlink()
            other = (
                "import torch; print(torch.load('model.pt')['step'], *__import__('os').listdir())"
            )
            read = await asyncio.to_thread(plainly, other, tmp_path)
            go_on()
            assert in_memory
            assert read.split()[0] == "1"
            assert "model.pt" in read
            assert "model.tmp" not in read

    asyncio.run(story())


def test_storage_gets_the_same_bytes_and_nothing_of_ours_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            await held.run(SAVE + "os.chmod('model.pt', 0o640)", tmp_path, cold=True)
            before, seen = (tmp_path / "model.pt").read_bytes(), os.stat(tmp_path / "model.pt")
            go_on()
            await soon(held.hold.settled())
            after = os.lstat(tmp_path / "model.pt")
            assert (tmp_path / "model.pt").read_bytes() == before
            assert (after.st_mode, after.st_mtime_ns) == (seen.st_mode, seen.st_mtime_ns)
            assert leftovers(tmp_path) == []
        assert not held.hold.root.exists()

    asyncio.run(story())


def test_a_directory_may_be_renamed_around_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            script = "os.mkdir('new'); torch.save(state(1), 'new/m.pt'); os.rename('new', 'step-1')"
            await held.run(script, tmp_path)
            go_on()
            await soon(held.hold.settled())
            assert stat_is_regular(tmp_path / "step-1" / "m.pt")
            assert leftovers(tmp_path / "step-1") == []

    asyncio.run(story())


def test_at_most_one_save_of_a_row_is_ahead_of_storage(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            script = """
for step in (1, 2, 3):
    torch.save(state(step), f'step-{step}.pt')
    print([s for s in (1, 2, 3) if os.path.islink(f'step-{s}.pt')])
"""
            ahead = [eval(line) for line in (await held.run(script, tmp_path)).splitlines()]
            assert all(len(each) <= 1 for each in ahead)

    asyncio.run(story())


def test_what_storage_refuses_is_raised_by_the_next_save_and_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            none = resource.RLIM_INFINITY
            resource.prlimit(held.hold.flusher_pid, resource.RLIMIT_FSIZE, (1 << 20, none))
            script = """
torch.save(state(1), 'model.pt')
try:
    torch.save(state(2), 'model.pt')
except OSError as refused:
    print(refused, flush=True)
input()
"""
            # It lives on: of a worker that has ended storage is not tried for long.
            worker = held.start(script, tmp_path)
            lines = lines_of(worker)
            said = await soon(lines.get())
            resource.prlimit(held.hold.flusher_pid, resource.RLIMIT_FSIZE, (none, none))
            await soon(held.hold.settled())
            worker.kill()
            while await soon(lines.get()):
                pass
            ended(worker)
            assert "File too large (the previous save): 'model.pt'" in said.replace(
                f"{tmp_path}/", ""
            )
            assert (await held.run(READ, tmp_path)).strip() == "1"

    asyncio.run(story())


def test_where_there_is_no_room_on_storage_torch_says_so_and_the_old_file_is_whole(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            script = """
import resource
none = resource.RLIM_INFINITY
torch.save(state(1), 'model.pt')
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, none))
try:
    torch.save(state(2), 'new.pt')
except Exception as refused:
    print(type(refused).__name__)
"""
            said = await held.run(script, tmp_path)
            assert said.strip() in ("RuntimeError", "OSError")
            assert (await held.run(READ, tmp_path)).strip() == "1"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("unfit", "said"),
    [
        ("sys.modules['_brain_places'].room = lambda root: 1 << 20\n", "has room for 1"),
        ("sys.modules['_brain_places'].LOCAL = frozenset()\n", "other machines may read"),
        ("os.mkfifo('model.tmp'); os.unlink('model.tmp'); torch.save(state(0), 'model.tmp')\n"
         "os.link('model.tmp', 'other')\n", "has other hard links"),
    ],
)  # fmt: skip
def test_where_memory_will_not_do_it_is_saved_as_always_and_said_once(
    unfit: str, said: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            look = "print(os.path.islink('model.pt'))\n"
            out = await held.run(unfit + SAVE + look + SAVE + look, tmp_path)
            assert out.split() == ["False", "False"] or "hard links" in said
            assert held.complaints.count(said) == 1

    asyncio.run(story())


def test_a_save_is_made_although_nobody_can_be_told_how(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            mute = "sys.modules['_brain_places'].room = lambda root: 1 << 20\nsys.stderr = None\n"
            await held.run(mute + SAVE, tmp_path)
            assert (await held.run(READ, tmp_path)).strip() == "1"

    asyncio.run(story())


@pytest.mark.parametrize(
    "act",
    [
        "os.link('model.pt', 'best.pt')",
        "open('model.pt', 'r+b').close()",
        "os.remove('model-1.pt')",
        "torch.save({}, 'model.pt')",
    ],
)
def test_what_a_link_cannot_bear_waits_for_storage(act: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            script = f"""
torch.save({{}}, 'model-1.pt')
torch.save(state(2), 'model-2.pt')
os.rename('model-2.pt', 'model.pt')
{act}
print(os.path.islink('model.pt'))
"""
            assert (await held.run(script, tmp_path)).strip() == "False"

    asyncio.run(story())


def test_a_link_of_the_script_stays_one_and_what_it_points_at_is_written(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            (tmp_path / "target.pt").write_bytes(b"old")
            (tmp_path / "model.pt").symlink_to("target.pt")
            await held.run("torch.save(state(1), 'model.pt')", tmp_path)
            await soon(held.hold.settled())
            assert os.readlink(tmp_path / "model.pt") == "target.pt"
            assert stat_is_regular(tmp_path / "target.pt")
            assert (await held.run(READ, tmp_path)).strip() == "1"

    asyncio.run(story())


def test_what_is_loaded_from_memory_is_as_if_loaded_from_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            script = """
base = torch.arange(1 << 19, dtype=torch.float32)
layer = torch.nn.Linear(8, 8)
torch.save(dict(a=base, b=base[4:8], c=base.view(2, -1).t(), m=layer.state_dict()), 'model.pt')
got = torch.load('model.pt')
got['b'].add_(1)
print(os.path.islink('model.pt'), got['a'][4].item(), torch.equal(got['c'][:, 1], base[1 << 18:]))
print(torch.load('model.pt')['a'][4].item(), torch.load('model.pt', mmap=True)['a'][5].item())
"""
            out = await held.run(script, tmp_path)
            go_on()
            assert out.split() == ["True", "5.0", "True", "4.0", "5.0"]

    asyncio.run(story())


def test_the_durable_file_before_is_kept_until_the_new_one_is_durable(tmp_path: Path) -> None:
    async def story() -> None:
        said: list[str] = []
        async with holding(tmp_path) as held:
            await held.run(SAVE, tmp_path)
            await soon(held.hold.settled())
            go_on = stop_keeper(held.hold)
            await held.run(SAVE.replace("1", "2"), tmp_path)
            registry = held.registry
            power_cut(held.hold.root)
            again = SharedMemory.open(new_root(f"test{os.getpid()}", 1), registry, said.append)
            await again.close()
            step = await asyncio.to_thread(plainly, "import torch\n" + READ, tmp_path)
            go_on()
        assert step.strip() == "1"
        assert "the previous save was restored" in said[0]
        assert leftovers(tmp_path) == []

    asyncio.run(story())


def test_a_pin_of_a_file_in_memory_is_what_it_becomes(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            await held.run(SAVE, tmp_path)
            path = tmp_path / "model.pt"
            kept = pins.pin(str(path), job="job", replaced=False)
            unchanged = pins.restore(kept)
            go_on()
            await soon(held.hold.settled())
            assert not unchanged
            assert os.path.samefile(kept.kept, path)
            assert links.inode(str(path)) == kept.inode

    asyncio.run(story())


#: Saves for ever, and says what was accepted.
FOR_EVER = """
step = int(os.path.exists('model.pt') and torch.load('model.pt')['step'])
while True:
    step += 1
    torch.save(state(step), 'model.tmp')
    os.replace('model.tmp', 'model.pt')
    print(step, flush=True)
"""


@pytest.mark.parametrize("victim", ["worker", "flusher"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_accepted_is_torn_or_lost_by_a_kill(victim: str, seed: int, tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            accepted = await killed_at_random(held, victim, seed, tmp_path)
            await soon(held.hold.settled())
            step = int(await held.run(READ, tmp_path))
            assert accepted <= step <= accepted + 1
        assert set(leftovers(tmp_path)) == set()

    asyncio.run(story())


def test_an_agent_leaves_though_its_keeper_fails_again_and_again(tmp_path: Path) -> None:
    async def story() -> list[str]:
        said: list[str] = []
        root = new_root(f"fails{os.getpid()}", 0)
        hold = SharedMemory.open(root, tmp_path / "home" / "directories", said.append)
        go_on = stop_keeper(hold)
        (root / "bell").unlink(missing_ok=True)
        (root / "bell").mkdir()
        os.kill(hold.flusher_pid, 9)
        go_on()
        await soon(hold.close())
        shutil.rmtree(root)
        return said

    assert "the next start tries again" in asyncio.run(story())[-1]


def test_a_keeper_that_misses_a_file_as_the_agent_leaves_is_followed_by_another(
    tmp_path: Path,
) -> None:
    async def story() -> str:
        async with holding(tmp_path) as held:
            while not (held.hold.root / "bell").exists():
                await asyncio.sleep(0.01)
            go_on = stop_keeper(held.hold)
            await held.run(SAVE, tmp_path)
            (held.hold.root / "steps").rmdir()  # as if it went while the flusher looks
            go_on()
        return held.said[0]

    assert "another one starts" in asyncio.run(story())
    assert not (tmp_path / "model.pt").is_symlink()


def test_what_an_agent_left_incomplete_is_finished_and_removed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            await held.run(SAVE, tmp_path)
            shutil.copytree(held.hold.root, left := new_root(f"left{os.getpid()}", 0), ignore=part)
            (left / "lock").touch()
            go_on()
        async with holding(tmp_path):
            await soon(gone(left))

    async def gone(left: Path) -> None:
        while left.exists():
            await asyncio.sleep(0.01)

    def part(_: str, names: list[str]) -> set[str]:
        return {"bell", "steps"} & set(names)

    asyncio.run(story())
    assert "Traceback" not in capfd.readouterr().err


#: Ends the process at the first audit event with that in its arguments.
DIES = """
def hook(event, args):
    if event == %r and %r in repr(args):
        os._exit(0)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize(
    ("event", "word"),
    [
        ("open", ".brain-new"),
        ("os.rename", "/writing-"),
        ("os.symlink", ".brain-link"),
        ("os.rename", ".brain-link"),
    ],
)
def test_of_a_save_that_its_worker_did_not_finish_nothing_stays(
    event: str, word: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            await held.run(DIES % (event, word) + SAVE, tmp_path)
            await soon(held.hold.settled())
        assert os.listdir(tmp_path) == ["home"]

    asyncio.run(story())


def test_what_cannot_be_removed_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            go_on = stop_keeper(held.hold)
            await held.run(SAVE, tmp_path)
            (slot,) = held.hold.root.glob("slot-*")
            with (slot / "names").open("a") as names:
                names.write(json.dumps({"name": str(tmp_path / "x"), "keep": str(tmp_path)}) + "\n")
            go_on()
            await soon(held.hold.settled())
            assert held.said == []

    asyncio.run(story())


async def killed_at_random(held: Held, victim: str, seed: int, directory: Path) -> int:
    """Kill a few times while it saves; the last step that was accepted."""
    import random

    moment = random.Random(seed)
    accepted = 0
    for _ in range(2 if victim == "worker" else 1):
        worker = held.start(FOR_EVER, directory)
        lines = lines_of(worker)
        for _ in range(moment.randrange(1, 4)):
            accepted = int(await soon(lines.get()))
        await asyncio.sleep(moment.random() * 0.05)
        if victim == "flusher":
            os.kill(held.hold.flusher_pid, 9)
            for _ in range(3):
                accepted = int(await soon(lines.get()))
        worker.kill()
        while line := await soon(lines.get()):
            accepted = int(line)
        ended(worker)
    return accepted


def test_what_a_killed_agent_left_is_finished_without_it(tmp_path: Path) -> None:
    async def story() -> None:
        agent = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            AGENT,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        )
        assert agent.stdout is not None
        root = Path((await soon(agent.stdout.readline())).decode().strip())
        agent.kill()
        await agent.wait()

        async def gone() -> None:
            while root.exists():
                await asyncio.sleep(0.01)

        await soon(gone())
        assert stat_is_regular(tmp_path / "model.pt")
        assert leftovers(tmp_path) == []

    asyncio.run(story())


#: An agent whose worker saves, and that waits to be killed.
AGENT = f"""
import asyncio
from pathlib import Path
from tests.launcher.remembering import holding
async def story():
    async with holding(Path('.').resolve()) as held:
        saves = {SAVE!r} + "print('saved', flush=True); input()"
        worker = held.start(saves, Path('.').resolve(), cold=True)
        assert worker.stdout.readline() == 'saved\\n'
        print(held.hold.root, flush=True)
        await asyncio.sleep(60)
asyncio.run(story())
"""


def test_what_a_killed_keeper_and_agent_left_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with holding(tmp_path) as held:
            stop_keeper(held.hold)
            await held.run(SAVE, tmp_path)
            root, hidden = held.hold.root, held.hold.root.with_name("." + held.hold.root.name)
            # As if both were gone: the same memory under a lock that nobody holds, found by
            # nobody, a flusher that follows on this one neither, until the agent is gone.
            os.rename(root, hidden)
            shutil.copyfile(hidden / "lock", hidden / "lock2")
            os.replace(hidden / "lock2", hidden / "lock")
            os.kill(held.hold.flusher_pid, 9)
        os.rename(hidden, root)
        again = SharedMemory.open(
            new_root(f"other{os.getpid()}", 0), held.registry, held.said.append
        )

        async def durable() -> None:
            while (tmp_path / "model.pt").is_symlink():
                await asyncio.sleep(0.01)

        await soon(durable())
        await again.close()
        assert (tmp_path / "model.pt").exists()

    asyncio.run(story())


MAPPED = """
loaded = torch.load('model.pt')
print(loaded['step'], any('/kept-' in line for line in open('/proc/self/maps')))
"""


def test_what_is_on_storage_is_read_from_memory(tmp_path: Path) -> None:
    async def story() -> str:
        async with holding(tmp_path) as held:
            await held.run(SAVE, tmp_path)
            await soon(held.hold.settled())
            return await held.run(MAPPED, tmp_path)

    assert asyncio.run(story()).split() == ["1", "True"]


def test_a_file_that_somebody_else_wrote_is_read_from_storage(tmp_path: Path) -> None:
    async def story() -> str:
        async with holding(tmp_path) as held:
            await held.run(SAVE, tmp_path)
            await soon(held.hold.settled())
            plainly("import torch; torch.save({'step': 2}, 'model.pt')", tmp_path)
            return await held.run(MAPPED, tmp_path)

    assert asyncio.run(story()).split() == ["2", "False"]


def test_what_a_script_does_to_what_it_loaded_stays_its_own(tmp_path: Path) -> None:
    async def story() -> str:
        async with holding(tmp_path) as held:
            await held.run(SAVE, tmp_path)
            await soon(held.hold.settled())
            script = """
import hashlib
before = hashlib.sha256(open('model.pt', 'rb').read()).hexdigest()
for value in torch.load('model.pt').values():
    if torch.is_tensor(value):
        value.add_(1)
print(before == hashlib.sha256(open('model.pt', 'rb').read()).hexdigest())
print(torch.load('model.pt')['step'])
"""
            return await held.run(script, tmp_path)

    assert asyncio.run(story()).split() == ["True", "1"]


def test_memory_keeps_one_file_of_a_row_to_be_read(tmp_path: Path) -> None:
    async def story() -> int:
        async with holding(tmp_path) as held:
            steps = "for s in range(4): torch.save(state(s), f'step-{s}.pt')"
            await held.run(steps, tmp_path)
            await soon(held.hold.settled())
            return len(list(held.hold.root.glob("kept-*")))

    assert asyncio.run(story()) == 1


def plainly(lines: str, directory: Path) -> str:
    """What a process without us prints."""
    return forks.run(lines, directory, os.environ)


def stat_is_regular(path: Path) -> bool:
    """Whether it is a file and no link."""
    return path.is_file() and not path.is_symlink()


def power_cut(root: Path) -> None:
    """Memory is gone, names are as they were."""
    for slot in root.glob("slot-*"):
        shutil.rmtree(slot)
    os.rename(root, root.with_name("." + root.name))
    shutil.rmtree(root.with_name("." + root.name))


def test_where_a_script_has_files_mapped_to_be_written_memory_stays_out(tmp_path: Path) -> None:
    async def story() -> str:
        async with holding(tmp_path) as held:
            await held.run(SAVE, tmp_path)
            await soon(held.hold.settled())
            script = """
import mmap
torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)
torch.load('model.pt')['weights'].add_(1)
torch.serialization.set_default_mmap_options(mmap.MAP_PRIVATE)
print(torch.load('model.pt')['weights'][0].item())
"""
            return await held.run(script, tmp_path)

    assert asyncio.run(story()).split() == ["1.0"]
