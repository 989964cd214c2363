"""A turn asks a number of questions that does not grow with the jobs that wait."""

from contextlib import closing
from dataclasses import replace

from brain import cycle
from brain.db import SqlStores
from brain.pool.rounds import Memo
from brain.ports import Stores
from brain.settings import Settings
from brain.types.job import OptimizeMode
from brain.types.resources import Resources
from tests.builders import at, document, job, node
from tests.fleets import job_id
from tests.pool.rounds.fleet import POOL
from tests.statements import statements


def test_a_turn_with_many_waiting_jobs_asks_no_more_than_one_with_few(
    sqlite_url: str, postgresql_url: str
) -> None:
    few, many = (4, 40)
    for url in (sqlite_url, postgresql_url):
        with closing(SqlStores(url)) as stores:
            with stores.transaction() as tx:
                tx.nodes.put(node())
            wait(stores, 0, few)
            expected = asked_by_a_quiet_turn(stores)
            wait(stores, few, many)
            assert asked_by_a_quiet_turn(stores) == expected
            assert len(expected) <= 20


def wait(stores: Stores, begin: int, end: int) -> None:
    """Queue jobs that the pool has no room for; every other one shares it."""
    modes = (OptimizeMode.CLUSTER, OptimizeMode.SINGLE_JOB)
    with stores.transaction() as tx:
        for number in range(begin, end):
            asks = document(
                f"job-{number}",
                resources=Resources(cpu_millis=4000),
                optimize_mode=modes[number % 2],
            )
            tx.jobs.add(replace(job(job_id(number), created_at=at(number)), document=asks))


def asked_by_a_quiet_turn(stores: Stores) -> list[str]:
    """The statements of a turn before which nothing happened."""
    memo = Memo(POOL)
    for seconds in (0, 2, 4):
        with statements() as asked:
            cycle.turn(stores, POOL, Settings(), at(60 + seconds), memo=memo).checked()
    return [one.partition(" IN (")[0] for one in asked]
