"""An agent keeps a collector beside it, and does without one where there can be none."""

import asyncio
import fcntl
from pathlib import Path

from launcher.workers.collector import keep_collector, undelivered
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


def test_a_run_by_hand_of_which_brain_learns_nothing_says_which_file_is_missing(
    tmp_path: Path,
) -> None:
    told = undelivered(str(tmp_path), "digits", "http://127.0.0.1:1")
    assert told is not None
    assert f"{tmp_path}/service.json and {tmp_path}/replicas/digits/token are missing" in told
    assert "`brain submit`" in told

    (tmp_path / "service.json").write_text("{}")
    (tmp_path / "replicas/digits").mkdir(parents=True)
    (tmp_path / "replicas/digits/token").write_text("t")
    assert undelivered(str(tmp_path), "digits", "http://127.0.0.1:1") is None
