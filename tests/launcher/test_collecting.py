"""An agent keeps a collector beside it, and does without one where there can be none."""

import asyncio
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
