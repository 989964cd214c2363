"""An agent keeps a collector beside it, and does without one where there can be none."""

import asyncio
import fcntl
from pathlib import Path

from launcher.extras.collecting import keep_collector
from tests.launcher.building import soon


def test_a_collector_that_cannot_be_started_is_told_of_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "collector" / "collector.log").mkdir(parents=True)

    async def keep() -> bool:
        said = asyncio.Event()
        keeping = asyncio.create_task(keep_collector(str(tmp_path), lambda _: said.set()))
        await soon(said.wait())
        return keeping.cancel()  # False: it had ended

    assert asyncio.run(keep())


def test_a_collector_of_another_machine_with_the_same_home_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "collector").mkdir()

    async def keep() -> str:
        said: asyncio.Queue[str] = asyncio.Queue()
        keeping = asyncio.create_task(keep_collector(str(tmp_path), said.put_nowait))
        told = await soon(said.get())
        keeping.cancel()
        return told

    with (tmp_path / "collector" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = asyncio.run(keep())
    assert "samples of this machine are lost" in told
    assert "set BRAIN_HOME" in told
