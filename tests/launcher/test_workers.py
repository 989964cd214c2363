"""Workers: started with the right environment, watched without polling, gone without a trace."""

import asyncio
import json
import signal
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from brain.errors import BadInput, Unavailable
from launcher.messages import Exited, encoded
from launcher.values.config import LogConfig, Std
from launcher.values.workers import ParkRequest, WorkerExit
from launcher.workers.environment import WorkerInjection, worker_environment
from launcher.workers.fork_server.channel import Child
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.processes.failures import failure_report, hand_on_error, root_cause
from launcher.workers.processes.process import free_port
from launcher.workers.workers import Workers
from tests.launcher.building import (
    ANNOUNCE,
    AS_PROGRAM,
    DEADLINE_SECONDS,
    Watched,
    a_config,
    a_world,
    python,
    running,
    soon,
)


def environment_of(group_rank: int, local_rank: int, tmp_path: Path) -> dict[str, str]:
    return worker_environment(
        a_config(tmp_path, ["true"], environment={}),
        a_world(1, 3, 2),
        group_rank,
        local_rank,
        injection=WorkerInjection(inject="/inject", probe=None, control="/c", agent="/a"),
        error_file="/e",
    )


@pytest.mark.parametrize(
    ("group_rank", "local_rank", "rank", "local_size"),
    [(0, 0, "0", "1"), (1, 0, "1", "3"), (1, 2, "3", "3"), (2, 1, "5", "2")],
)
def test_ranks_count_the_processes_of_members_before(
    group_rank: int, local_rank: int, rank: str, local_size: str, tmp_path: Path
) -> None:
    seen = environment_of(group_rank, local_rank, tmp_path)
    assert (seen["RANK"], seen["LOCAL_WORLD_SIZE"]) == (rank, local_size)
    assert (seen["WORLD_SIZE"], seen["GROUP_WORLD_SIZE"]) == ("6", "3")


def test_a_worker_learns_its_local_rank_if_the_variable_is_0_everywhere(tmp_path: Path) -> None:
    seen = worker_environment(
        a_config(tmp_path, ["true"], environment={}, virtual_local_rank=True),
        a_world(2),
        0,
        1,
        injection=WorkerInjection(inject="/inject", probe=None, control="/c", agent="/a"),
        error_file="/e",
    )
    assert (seen["LOCAL_RANK"], json.loads(seen["BRAIN_WORKER"])["local_rank"]) == ("0", 1)


def test_threads_are_limited_only_where_several_workers_share_a_machine(tmp_path: Path) -> None:
    assert "OMP_NUM_THREADS" not in environment_of(0, 0, tmp_path)
    assert environment_of(1, 0, tmp_path)["OMP_NUM_THREADS"] == "1"


def test_an_exit_comes_as_an_event_with_its_code(tmp_path: Path) -> None:
    async def story() -> None:
        script = "import os, sys; sys.exit(int(os.environ['RANK']) * 3)"
        async with running(a_config(tmp_path, python(script)), a_world(2)) as watched:
            await watched.all()
            assert {exit.rank: exit.code for exit in watched.exits} == {0: 0, 1: 3}

    asyncio.run(story())


class OneByOne(ForkServer):
    """Has no worker started before those before it have ended, and then not by itself."""

    watched: Watched
    started = 0

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> Child:
        await self.watched.until(lambda: len(self.watched.exits) == self.started)
        self.started += 1
        raise Unavailable("it starts nobody")


def test_one_that_ends_before_the_next_is_started_is_not_all_of_them(tmp_path: Path) -> None:
    async def story() -> list[int]:
        config = a_config(tmp_path, python("pass"))
        fork_server = OneByOne(config, print, DEADLINE_SECONDS)
        fork_server.watched = watched = Watched()
        told: Any = {"on_event": watched.heard, "on_exit": watched.ended}
        watched.workers = await Workers.start(
            config, a_world(2), 0, fork_server=fork_server, **told
        )
        exits = await watched.all()
        await soon(watched.workers.stop(0))
        await fork_server.close()
        return [exit.rank for exit in exits]

    assert asyncio.run(story()) == [0, 1]


def test_a_signal_counts_as_a_shell_counts_it(tmp_path: Path) -> None:
    async def story() -> None:
        script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        async with running(a_config(tmp_path, python(script))) as watched:
            (exit,) = await watched.all()
            assert (exit.exit_code, "SIGSEGV" in exit.message) == (139, True)

    asyncio.run(story())


def test_recorded_errors_name_the_root_cause(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    raise ValueError('the loss is a banana')\n"
        "main()\n"
    )
    mine = tmp_path / "mine.json"

    async def story() -> None:
        async with running(a_config(tmp_path, (sys.executable, str(script)))) as watched:
            exits = await watched.all()
            assert "ValueError: the loss is a banana" in failure_report("train.py", exits)
            hand_on_error(exits, {"TORCHELASTIC_ERROR_FILE": str(mine)})
            assert json.loads(mine.read_text())["message"]["errorCode"] == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    "lines",
    [
        "path.mkdir()",
        'path.write_text(\'{"message": {"message": "m", "extraInfo": "x"}}\')',
        'path.write_text(\'{"message": {"extraInfo": {"timestamp": 1.7e18}}}\')',
        'path.write_text(\'{"message": "\\\\ud800"}\')',
        "path.write_text('{\"message\": \"' + 'x' * 5_000_000 + '\"}')",
    ],
)
def test_whatever_is_in_an_error_file_the_exit_is_told(lines: str, tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "path = pathlib.Path(os.environ['TORCHELASTIC_ERROR_FILE'])\n"
        f"{lines}\nsys.exit(3)\n"
    )

    async def story() -> WorkerExit:
        config = a_config(tmp_path, python(script))
        async with running(config) as watched:
            (exit,) = await watched.all()
        return exit

    exit = asyncio.run(story())
    assert exit.code == 3
    assert len(encoded(Exited(epoch=1, exit=exit))) < 1 << 16


def test_torchs_hint_stands_in_the_report_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(a_config(tmp_path, python("raise SystemExit(3)"))) as watched:
            (exit,) = await watched.all()
            assert exit.message == ""
            assert "To enable traceback see" in failure_report("train.py", [exit])

    asyncio.run(story())


def test_a_worker_that_was_stopped_is_not_the_cause(tmp_path: Path) -> None:
    script = "import os, sys, time; time.sleep(60 * int(os.environ['RANK'])); sys.exit(5)"

    async def story() -> None:
        async with running(a_config(tmp_path, python(script)), a_world(2)) as watched:
            await watched.until(lambda: bool(watched.exits))
            exits = await soon(watched.workers.stop(5))
            root = root_cause(exits)
            assert root is not None
            assert (root.rank, [exit.stopped for exit in exits]) == (0, [False, True])

    asyncio.run(story())


def test_events_of_this_epoch_arrive_and_others_do_not(tmp_path: Path) -> None:
    script = ANNOUNCE + (
        "say(event='stepping', epoch=3)\n"
        "say(event='saved', path='/c.pt', step=20, seconds=0.5, bytes=9, replaced=True, new='?')\n"
        "say(event='parked', step=20, path=None)\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, (*AS_PROGRAM, script))) as watched:
            await watched.all()
            assert [(e.event, e.step) for e in watched.events] == [("saved", 20), ("parked", 20)]

    asyncio.run(story())


def test_progress_and_parking_go_through_the_control_file(tmp_path: Path) -> None:
    script = ANNOUNCE + (
        "import mmap, struct, time\n"
        "with open(told['control'], 'r+b') as file: control = mmap.mmap(file.fileno(), 64)\n"
        "struct.pack_into('<QQQ', control, 24, 7, 1000, 5)\n"
        "say(event='started')\n"
        "while struct.unpack_from('<Q', control, 8) != (1,): time.sleep(0.002)\n"
        "struct.pack_into('<Q', control, 48, 1)\n"
        "say(event='parked')\n"
        "time.sleep(600)\n"
    )

    async def story() -> None:
        async with running(a_config(tmp_path, (*AS_PROGRAM, script))) as watched:
            await watched.until(lambda: len(watched.events) == 1)
            watched.workers.park(ParkRequest.AT_SAVE)
            await watched.until(lambda: len(watched.events) == 2)
            (seen,) = watched.workers.progress()
            assert (seen.steps, seen.last_step_ns, seen.saved_step) == (7, 1000, 5)
            assert seen.parked
            await soon(watched.workers.stop(0))
            assert watched.workers.progress() == (seen,)

    asyncio.run(story())


def test_a_worker_ends_itself_when_its_lease_runs_out(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_config(tmp_path, python("import time; time.sleep(600)"))
        async with running(config, a_world(1, lease_seconds=0.2)) as watched:
            (exit,) = await watched.all()
            assert exit.code == 83

    asyncio.run(story())


def test_a_renewed_lease_lets_it_live(tmp_path: Path) -> None:
    async def story() -> None:
        # Longer than this process may be kept from going on between the two.
        config = a_config(tmp_path, python("import time; time.sleep(4)"))
        async with running(config, a_world(1, lease_seconds=3.0)) as watched:
            watched.workers.extend_lease(0)
            (exit,) = await watched.all()
            assert exit.code == 0

    asyncio.run(story())


def test_the_lease_holds_programs_that_are_no_python(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_config(tmp_path, ["sleep", "600"])
        async with running(config, a_world(1, lease_seconds=0.2)) as watched:
            (exit,) = await watched.all()
            assert exit.code == -signal.SIGKILL

    asyncio.run(story())


def test_every_line_is_in_the_replicas_log_behind_its_rank(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    script = "import os; os.write(1, b'one\\ntwo\\rthree'); os.write(2, b'bad \\xff\\n')"
    config = a_config(tmp_path, python(script), logs=LogConfig(replica_log=str(log)))

    async def story() -> None:
        async with running(config, a_world(2, 1), group_rank=1) as watched:
            await watched.all()
        lines = sorted(log.read_bytes().splitlines())
        assert lines == [b"[default2]:" + word for word in (b"bad \xff", b"one", b"three", b"two")]

    asyncio.run(story())


def test_logs_of_another_world_do_not_overwrite_those_of_the_same_attempt(tmp_path: Path) -> None:
    logs = LogConfig(run_directory=str(tmp_path / "run"), redirects={None: Std.OUT})
    config = a_config(tmp_path, python("print('here')"), logs=logs)

    async def story() -> None:
        for epoch in (1, 2):
            async with running(config, a_world(1, epoch=epoch)) as watched:
                await watched.all()
        found = sorted(path.name for path in (tmp_path / "run").iterdir())
        assert found == ["attempt_0", "attempt_0_epoch_2"]

    asyncio.run(story())


def test_the_private_directory_is_private_and_goes(tmp_path: Path) -> None:
    script = ANNOUNCE + "say(event='saved', path=told['control'])\nimport time; time.sleep(600)\n"

    async def story() -> None:
        async with running(a_config(tmp_path, (*AS_PROGRAM, script))) as watched:
            await watched.until(lambda: bool(watched.events))
            path = watched.events[0].path
            assert path is not None
            directory = Path(path).parent
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            await soon(watched.workers.stop(0))
            assert not directory.exists()

    asyncio.run(story())


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        config = a_config(tmp_path / "nowhere", python("pass"))
        with pytest.raises(BadInput, match="nowhere does not exist"):
            await Workers.start(
                config, a_world(1), 0, on_event=lambda _: None, on_exit=lambda _: None
            )

    asyncio.run(story())


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as store:
        store.bind(("127.0.0.1", free_port("localhost")))


def test_free_ports_are_none_that_the_kernel_gives_to_others() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port("127.0.0.1") < max(low, 30_000) for _ in range(50))


def test_an_address_of_another_machine_has_no_port_for_us() -> None:
    with pytest.raises(BadInput, match="not an address of this machine"):
        free_port("192.0.2.1")
