"""A forked worker that fails ends at once, but not before what its script made has ended."""

import asyncio
from pathlib import Path

import pytest

from launcher.values.workers import WorkerExit
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.workers import Workers
from tests.launcher.building import Watched, a_config, a_world, soon

SCRIPT = """
import atexit, helper, sys
sys.modules |= {{"a.kind": type("kind", (), {{}}), "absent": None}}
class Late:
    def __del__(self, log=helper.log): log.write("deleted ")
late = Late()
class Proxy:
    __class__ = property(lambda self, log=helper.log: log.write("looked at "))
sys.proxy = Proxy()
atexit.register(helper.log.write, "registered ")
helper.log.write("written ")
{end}
"""


def ended(tmp_path: Path, end: str) -> tuple[WorkerExit, str]:
    """How a worker ended, and what it had written but never flushed."""
    (tmp_path / "helper.py").write_text("log = open('log', 'w')\n")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(end=end))

    async def story() -> WorkerExit:
        config = a_config(tmp_path, ["python3", "-u", str(script)])
        fork_server = await ForkServer.open(config, print)
        watched = Watched()
        try:
            watched.workers = await Workers.start(
                config,
                a_world(1),
                0,
                fork_server=fork_server,
                on_event=watched.heard,
                on_exit=watched.ended,
            )
            (exit,) = await watched.all()
            await soon(watched.workers.stop(0))
            return exit
        finally:
            await fork_server.close()

    return asyncio.run(story()), (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        *(("raise SystemExit(7)", 7), ("raise ValueError", 1), ("exit('so')", 1)),
        ("sys.excepthook = lambda *_: exit(9); raise ValueError", 9),
    ],
)
def test_a_failed_worker_ends_with_its_code_and_loses_nothing(
    end: str, code: int, tmp_path: Path
) -> None:
    exit, log = ended(tmp_path, end)

    assert exit.code == code
    assert log == "written registered deleted "


#: Ends as a script with a session that reports its failure to the other workers.
EXITS = """sys.modules["_brain_elastic"] = type("session", (), dict(
    failing=lambda log=helper.log: log.write("failing ")
))
sys.exit({status})"""


@pytest.mark.parametrize(("status", "code", "told"), [(256, 0, False), (257, 1, True)])
def test_a_worker_reports_a_failure_only_if_its_exit_status_is_one(
    status: int, code: int, told: bool, tmp_path: Path
) -> None:
    exit, log = ended(tmp_path, EXITS.format(status=status))
    assert (exit.code, "failing" in log) == (code, told)
