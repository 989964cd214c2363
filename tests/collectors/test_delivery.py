"""The delivery of spooled samples, where another job's samples come in between."""

import asyncio
from pathlib import Path

from brain import wire
from collectors.delivery import Delivery
from collectors.spool import Spool
from tests.collectors.serviced import window


def test_the_first_sample_of_a_job_may_arrive_while_those_of_another_are_sent(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path)
    sample = wire.encode_sample(window(0))
    spool.append("first", sample, now=0.0)

    def url(job: str) -> None:
        if job == "first":
            spool.append("second", sample, now=0.0)

    delivery = Delivery(spool, url=url, token=lambda job: "token")
    assert asyncio.run(delivery.turn()) == 0.0
    asyncio.run(delivery.turn())
    assert set(delivery.errors()) == {"first", "second"}
