"""The delivery of spooled samples, where another job's samples come in between."""

import asyncio
from pathlib import Path

import pytest

from brain import wire
from collectors.delivery import Delivery
from collectors.spool import Spool
from tests.collectors.serviced import service, window


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


@pytest.mark.parametrize("status", [200, 302, 308])
def test_a_proxy_that_answers_with_a_page_or_a_redirect_costs_no_sample(
    tmp_path: Path, status: int
) -> None:
    spool = Spool(tmp_path)
    for index in range(3):
        spool.append("job", wire.encode_sample(window(index)), now=0.0)

    async def deliver(url: str) -> Delivery:
        delivery = Delivery(spool, url=lambda job: url, token=lambda job: "token")
        for _ in range(4):
            delivery.hurry()
            await delivery.turn()
        await delivery.close()
        return delivery

    with service() as behind:
        behind.answer = lambda samples: (status, "", {"Location": "https://sso.example/"})
        delivery = asyncio.run(deliver(behind.url))

    assert (delivery.counts.rejected, spool.waiting) == (0, 3)
