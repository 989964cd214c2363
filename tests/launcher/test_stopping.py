"""Workers are stopped: who is asked, who is waited for, and nothing is left."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.values.workers import ParkRequest
from tests.launcher.building import (
    ANNOUNCE,
    AS_PROGRAM,
    DEADLINE_SECONDS,
    a_config,
    file_appears,
    python,
    running,
    soon,
)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes as we read
        return False
    return state not in "ZX"


def test_who_catches_the_signal_gets_its_grace(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys\n"
        "def leave(*_): pathlib.Path('saved').write_text('yes'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave); pathlib.Path('ready').write_text('yes')\n"
        "while True: signal.pause()\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, python(script))) as watched:
            await file_appears(tmp_path / "ready")
            (exit,) = await soon(watched.workers.stop(20))
            assert (exit.code, (tmp_path / "saved").read_text()) == (0, "yes")

    asyncio.run(story())


#: A parked worker; argument: what it does with SIGTERM.
PARKED = ANNOUNCE + (
    "import mmap, pathlib, signal, struct, sys, time\n"
    "with open(told['control'], 'r+b') as file: control = mmap.mmap(file.fileno(), 64)\n"
    "asked = []\n"
    "%s\n"
    "say(event='started')\n"
    "while struct.unpack_from('<Q', control, 8) == (0,): time.sleep(0.002)\n"
    "say(event='parked')\n"
    "while struct.unpack_from('<Q', control, 8) == (1,): time.sleep(0.002)\n"
    "pathlib.Path('stepped').write_text('asked' if asked else 'not asked')\n"
)


@pytest.mark.parametrize(
    ("handling", "stepped"),
    [("signal.signal(signal.SIGTERM, lambda *_: asked.append(1))", ["asked"]), ("", [])],
)
def test_a_parked_worker_goes_on_only_if_it_heard_that_it_shall_end(
    handling: str, stepped: list[str], tmp_path: Path
) -> None:
    async def story() -> None:
        config = a_config(tmp_path, (*AS_PROGRAM, PARKED % handling))
        async with running(config) as watched:
            await watched.until(lambda: bool(watched.events))
            watched.workers.park(ParkRequest.AT_SAVE)
            await watched.until(lambda: len(watched.events) == 2)
            await soon(watched.workers.stop(20))
        assert [path.read_text() for path in tmp_path.glob("stepped")] == stepped

    asyncio.run(story())


@pytest.mark.parametrize(
    ("handler", "code", "then", "stopped"),
    [
        ("lambda *_: None", 3, ParkRequest.AT_SAVE, True),
        ("lambda *_: None", 3, ParkRequest.RUN, False),
        ("lambda *_: None", 0, ParkRequest.RUN, True),
        ("signal.SIG_DFL", 0, ParkRequest.AT_SAVE, True),
    ],
)
def test_who_ends_because_it_was_signalled_to_save_has_neither_failed_nor_finished(
    handler: str, code: int, then: ParkRequest, stopped: bool, tmp_path: Path
) -> None:
    script = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGUSR1, {handler}); pathlib.Path('ready').write_text('yes')\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        f"sys.exit({code})\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, python(script))) as watched:
            await file_appears(tmp_path / "ready")
            watched.workers.park(ParkRequest.AT_SAVE)
            watched.workers.ask_to_save(signal.SIGUSR1)
            watched.workers.park(then)
            (tmp_path / "go").touch()
            (exit,) = await watched.all()
            assert (exit.code, exit.stopped) == (code, stopped)

    asyncio.run(story())


def test_who_outlives_its_grace_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: None); pathlib.Path('ready').write_text('yes')\n"
        "while True: signal.pause()\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, python(script))) as watched:
            await file_appears(tmp_path / "ready")
            (exit,) = await soon(watched.workers.stop(0.1))
            assert exit.code == -signal.SIGKILL

    asyncio.run(story())


def test_who_does_not_catch_it_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        script = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
        async with running(a_config(tmp_path, python(script))) as watched:
            (exit,) = await soon(watched.workers.stop(10 * DEADLINE_SECONDS))
            assert exit.code in (-signal.SIGTERM, -signal.SIGKILL)

    asyncio.run(story())


GRANDCHILDREN = (
    "import pathlib, subprocess, time\n"
    "near = subprocess.Popen(['sleep', '600'])\n"
    "far = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "pathlib.Path('half').write_text(f'{near.pid} {far.pid}')\n"
    "pathlib.Path('half').rename('pids')\n"
    "time.sleep(600)\n"
)


def test_stop_leaves_no_grandchild(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(a_config(tmp_path, python(GRANDCHILDREN))) as watched:
            pids = [int(pid) for pid in (await file_appears(tmp_path / "pids")).split()]
            await soon(watched.workers.stop(5))
            assert not any(alive(pid) for pid in pids)

    asyncio.run(story())


AGENT = """
import asyncio, sys
from pathlib import Path
from tests.launcher.building import a_config, python, running
async def main():
    config = a_config(Path(sys.argv[1]), python(sys.argv[2]))
    async with running(config) as watched:
        print(*watched.workers.pids, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_nothing_outlives_an_agent_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path), GRANDCHILDREN],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ) | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
    )

    assert agent.stdout is not None
    said = agent.stdout

    async def story() -> None:
        worker = int(await soon(asyncio.to_thread(said.readline)))
        pids = [worker, *map(int, (await file_appears(tmp_path / "pids")).split())]
        agent.kill()
        while any(alive(pid) for pid in pids) or list(temporary.iterdir()):
            await asyncio.sleep(0.02)

    try:
        asyncio.run(asyncio.wait_for(story(), DEADLINE_SECONDS))
    finally:
        agent.kill()
        agent.wait()
        said.close()


def test_an_uploader_of_a_worker_that_ended_well_may_finish(tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "command = ['sh', '-c', 'sleep 0.5; echo yes > uploaded']\n"
        "subprocess.Popen(command, start_new_session=True)\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, python(script))) as watched:
            await watched.all()
        assert await file_appears(tmp_path / "uploaded") == "yes\n"

    asyncio.run(story())
