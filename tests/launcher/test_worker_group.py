"""An agent's workers when its machine refuses something."""

import asyncio
import contextlib
import sys
from pathlib import Path

from launcher import messages
from launcher.agent.worker_group.group import WorkerGroup
from launcher.ram_checkpoint.agent import RamCheckpoint
from launcher.values.config import LogConfig
from tests.launcher.building import a_config, a_world, soon


def test_a_world_that_cannot_be_prepared_here_costs_only_that(tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    (tmp_path / "train.py").touch()
    logs = LogConfig(run_directory=str(tmp_path / "full"))  # no directory can be made in it
    config = a_config(tmp_path, [sys.executable, "train.py"], logs=logs, replica=10)

    async def story() -> messages.Message:
        told: asyncio.Queue[messages.Message] = asyncio.Queue()
        worker_group = WorkerGroup(
            config,
            "127.0.0.1",
            memory=RamCheckpoint(""),
            tell=told.put_nowait,
            phase=lambda _: None,
            say=lambda _: None,
        )
        await worker_group.open()
        obeying = asyncio.create_task(worker_group.obey())
        worker_group.order(messages.Prepare(world=a_world(1)))
        said = await soon(told.get())
        obeying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await obeying
        await worker_group.close()
        return said

    said = asyncio.run(story())
    assert isinstance(said, messages.Prepared)
    assert (said.ok, "full" in said.reason) == (False, True)
