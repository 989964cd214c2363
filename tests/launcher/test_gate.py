"""A prepared worker runs ahead of its world, and waits before anything that would be felt."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.values.config import LogConfig, Std
from launcher.values.workers import ProbeEvent
from launcher.workers.workers import Workers
from tests.launcher.building import a_config, a_world, soon
from tests.launcher.fork_servers import a_command, a_fork_server, a_script, forked, printed

#: Tells a file that ``before`` was reached, and later that ``beyond`` was.
TOLD = """
import os
def tell(what):
    os.write(told, what + b' ')
told = os.open('/dev/shm/' + os.environ['TOLD'], os.O_RDWR)
tell(b'before')
try:
    %s
except OSError:
    pass
tell(b'beyond')
"""

FELT = {
    "its end": "told, tell = told, lambda what: None",
    "a checkpoint": "open('old/model.pt').read()",
    "whether there is a checkpoint": "os.path.exists('old/model.pt')",
    "what lies beside a checkpoint": "open('old/latest').read()",
    "the directory of checkpoints": "os.listdir('old')",
    "a look for checkpoints": "import glob; glob.glob('old/*.pt')",
    "a file that changed since the job runs": "open('new/log').read()",
    "a file that may come": "os.path.exists('new/there.pt')",
    "a path that may come": "import pathlib; pathlib.Path('new/there.pt').exists()",
    "writing": "open('log.txt', 'w')",
    "renaming": "os.rename('old.txt', 'other.txt')",
    "listening": "import socket; socket.socket().bind(('127.0.0.1', 1))",
}
UNFELT = {
    "its own modules": "import helper",
    "data that was there before": "open('old.txt').read()",
    "listing what was there before": "os.listdir('data')",
    "nameless files": "import tempfile; tempfile.TemporaryFile().write(b'x')",
    "temporary files": "import tempfile; tempfile.NamedTemporaryFile().write(b'x')",
    "temporary directories": "import tempfile; open(tempfile.mkdtemp() + '/x', 'w')",
    "a port that is anybody's": "import socket; socket.socket().bind(('127.0.0.1', 0))",
    "directories that may be there": "os.makedirs('old', exist_ok=True)",
    "what may come among temporary files": "os.path.exists('/tmp/nothing-there')",
    "plug-ins of libraries": "from importlib.metadata import entry_points; entry_points()",
    "torch": "import torch; torch.nn.Linear(3, 3)(torch.ones(3))",
}


def a_place(directory: Path) -> None:
    """Files from before the job, and a directory that it has changed."""
    for name in ("old", "data", "new"):
        (directory / name).mkdir()
    old = ("old/model.pt", "old/latest", "old.txt", "data/one", "helper.py")
    for name in (*old, "new/log"):
        (directory / name).write_text("")
    for name in (*old, "old", "data"):
        os.utime(directory / name, (1e9, 1e9))


async def reached_while_held(directory: Path, act: str, preload: str = "learned") -> str:
    """What a held worker told before it waited."""
    a_place(directory)
    told = Path("/dev/shm", f"brain-test-{os.getpid()}-{directory.name}")
    told.write_text("")
    environment = {"environment": dict(os.environ) | {"TOLD": told.name}}
    config = a_script(directory, TOLD % act, preload=preload, **environment)
    try:
        async with a_fork_server(config) as (fork_server, _):
            fork_server.checkpoints.append(str(directory / "old/model.pt"))
            async with forked(config, fork_server, held=True) as watched:
                await watched.until(lambda: any(e.event == "gated" for e in watched.events))
                assert watched.workers.gated
                reached = told.read_text()
                watched.workers.release()
                (exit,) = await watched.all()
                assert exit.code == 0
        return reached
    finally:
        told.unlink()


@pytest.mark.parametrize("what", FELT)
def test_it_waits_before(what: str, tmp_path: Path) -> None:
    act = FELT[what]
    reached = asyncio.run(reached_while_held(tmp_path, act if what != "its end" else "pass"))
    assert reached == ("before beyond " if what == "its end" else "before ")


@pytest.mark.parametrize("what", UNFELT)
def test_it_does_not_wait_before(what: str, tmp_path: Path) -> None:
    assert asyncio.run(reached_while_held(tmp_path, UNFELT[what])) == "before beyond "


def test_workers_are_prepared_however_many_checkpoints_the_job_has_saved(tmp_path: Path) -> None:
    a_place(tmp_path)
    saved = ProbeEvent(rank=0, local_rank=0, epoch=1, event="saved")
    steps = [
        replace(saved, path=f"/mnt/checkpoints/language-model-of-a-team/run-17/step-{step}.pt")
        for step in range(5000)
    ]

    async def story() -> None:
        config = a_script(tmp_path, "open('old/model.pt').read()")
        async with a_fork_server(config) as (fork_server, _):
            for event in (*steps, replace(saved, path=str(tmp_path / "old/model.pt"))):
                fork_server.heard(event)
            async with forked(config, fork_server, held=True) as watched:
                await watched.until(lambda: any(e.event == "gated" for e in watched.events))
                watched.workers.release()
                await watched.all()

    asyncio.run(story())


def test_what_is_imported_only_by_the_script_is_seen_by_gate_and_probe_alike(
    tmp_path: Path,
) -> None:
    reached = asyncio.run(reached_while_held(tmp_path, UNFELT["torch"], preload="none"))
    assert reached == "before beyond "


DISTRIBUTED = """
import os, torch, torch.distributed as dist
from torch.distributed import init_process_group
os.environ['MASTER_PORT'] = '0'
print('before', flush=True)
exec(os.environ['ACT'])
print('beyond', flush=True)
os._exit(0)  # torch 2.13 now and then aborts as it takes a group apart
"""
ACTS = [
    "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
    "init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
    "p = torch.nn.Parameter(torch.ones(1)); torch.optim.SGD([p], 0.1).step()",
    "torch.cuda._lazy_init() if torch.cuda.is_available() else os.listdir('.')",
]


@pytest.mark.parametrize(("preload", "acts"), [("learned", ACTS), ("none", ACTS[:3])])
def test_it_makes_no_step_and_no_group_before_its_world_exists(
    preload: str, acts: list[str], tmp_path: Path
) -> None:
    async def story() -> None:
        config = a_script(tmp_path, DISTRIBUTED, preload=preload)
        said: list[str] = []
        async with a_fork_server(config) as (fork_server, _):
            for act in acts:
                acting = replace(config, environment={**config.environment, "ACT": act})
                async with forked(acting, fork_server, held=True) as watched:
                    await watched.until(lambda watched=watched: watched.workers.gated)
                    # What it prints is not read yet.
                    assert printed(tmp_path).splitlines() == said, act
                    watched.workers.release()
                    await watched.all()
                said += ["before", "beyond"]
                assert printed(tmp_path).splitlines() == said, act

    asyncio.run(story())


def test_what_never_came_to_be_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('here'); open('x', 'w')")
    logs = LogConfig(run_directory=str(tmp_path / "run"), redirects={None: Std.OUT})
    config = a_config(tmp_path, (sys.executable, "-u", "train.py"), logs=logs)

    async def story() -> None:
        async with (
            a_fork_server(config) as (fork_server, _),
            forked(config, fork_server, held=True) as watched,
        ):
            await watched.until(lambda: watched.workers.gated)
        assert list((tmp_path / "run").iterdir()) == []

    asyncio.run(story())


def test_who_fails_before_the_gate_does_not_wait_there(tmp_path: Path) -> None:
    config = a_script(tmp_path, "raise SystemExit(3)")

    async def story() -> None:
        async with (
            a_fork_server(config) as (fork_server, _),
            forked(config, fork_server, held=True) as watched,
        ):
            (exit,) = await watched.all()
            assert (exit.code, watched.workers.gated) == (3, False)

    asyncio.run(story())


def test_a_script_that_runs_on_has_what_it_had(tmp_path: Path) -> None:
    lines = (
        "import os, sys\n"
        "before = os.stat, len(sys.meta_path)\n"
        "open('x', 'w').close()\n"
        "import posix\n"
        "print(os.stat is posix.stat, os.access is posix.access)\n"
    )
    config = a_script(tmp_path, lines)

    async def story() -> None:
        async with (
            a_fork_server(config) as (fork_server, _),
            forked(config, fork_server, held=True) as watched,
        ):
            await watched.until(lambda: watched.workers.gated)
            watched.workers.release()
            await watched.all()
        assert printed(tmp_path) == "True True"

    asyncio.run(story())


def test_children_of_a_held_worker_do_not_wait(tmp_path: Path) -> None:
    lines = (
        "import os, sys\n"
        "if not os.fork():\n"
        "    os.listdir('.'); os._exit(0)\n"
        "os.wait(); os.write(1, b'ahead\\n'); open('x', 'w')\n"
    )
    config = a_script(tmp_path, lines)

    async def story() -> None:
        async with (
            a_fork_server(config) as (fork_server, _),
            forked(config, fork_server, held=True) as watched,
        ):
            await watched.until(lambda: watched.workers.gated)

    asyncio.run(story())


def test_only_what_is_forked_can_be_held(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_command(tmp_path, "sleep", "600")
        with pytest.raises(BadInput, match="only forked workers wait"):
            await soon(
                Workers.prepare(
                    config, a_world(1), 0, on_event=lambda _: None, on_exit=lambda _: None
                )
            )

    asyncio.run(story())
