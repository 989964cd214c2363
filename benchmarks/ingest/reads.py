"""Measures reads over millions of samples: the routes that pages and commands call, compared with
plain SQL.

``make bench-reads``; ``FULL=1`` has 24 million samples instead of 2 million.

The stores write the samples, because writing them through the route would take an hour. The service
that ``python -m brain.service`` starts then answers over HTTP. It is compared with one SQL
statement for the same rows, which a connection of the driver executes and fetches. Both are called
in turn.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import psycopg
import sqlalchemy as sa

from benchmarks.ingest import services
from benchmarks.ingest.services import Database
from benchmarks.report import Row, publish
from brain import wire
from brain.db import SqlStores, prepare
from brain.ports import Transaction
from brain.types.job import JobId, JobState
from brain.types.resources import NodeName, Resources
from tests.builders import document, job, node, recommendation, replica, throughput, world
from tests.serving import Service

KINDS = ("SQLite", "PostgreSQL")
JOBS, NODES = 2_000, 10_000
SHORT, FULL = 2_000_000, 24_000_000
#: Seconds between two samples of a job.
PERIOD = 5
#: Jobs that are stored in one transaction.
TOGETHER = 20
#: Times that each question is asked.
OF_A_JOB, OF_A_LIST = 300, 40
#: Most time over that of the bare statement, at the 99th percentile.
BAR = 3.0

_PLACE = """
SELECT CAST(r.slot AS BIGINT) * 300000000 + r.within AS instant, r.steps, r.step_seconds_mean,
       r.examples_per_second, c.job, c.phase, c.processes
FROM throughput_contexts c JOIN throughput_rows r ON r.context = c.id
"""
#: Mean throughput of a job in at most 300 buckets of an hour.
_HOUR = f"""
SELECT instant / 12000000, sum(examples_per_second * steps * step_seconds_mean)
       / sum(steps * step_seconds_mean), min(examples_per_second), max(examples_per_second)
FROM ({_PLACE} WHERE c.job = %s AND r.slot >= %s) AS s
WHERE phase = 'training' GROUP BY 1 ORDER BY 1
"""
#: Jobs, newest first, with what runs, what was decided, and the throughput of the last minute.
_LIST = f"""
SELECT j.*, p.*, d.recommendation, w.epoch, w.members, x.replicas, m.mean
FROM jobs j
LEFT JOIN plans p ON p.job = j.id AND p.state IN ('Proposed', 'Approved', 'Applying')
LEFT JOIN decisions d ON d.job = j.id
LEFT JOIN worlds w ON w.job = j.id AND w.ended_at IS NULL
LEFT JOIN (SELECT job, count(*) AS replicas FROM replicas GROUP BY job) AS x ON x.job = j.id
LEFT JOIN (
    SELECT job, avg(examples_per_second) AS mean FROM ({_PLACE} WHERE r.slot >= %s) AS s
    WHERE instant >= %s GROUP BY job
) AS m ON m.job = j.id
ORDER BY j.created_at DESC
"""
_NODES = """
SELECT n.*, x.job, x.resources, j.document
FROM nodes n LEFT JOIN replicas x ON x.node = n.name LEFT JOIN jobs j ON j.id = x.job
ORDER BY n.name
"""


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    samples = FULL if "--full" in sys.argv else SHORT
    rows = [row for kind in KINDS for row in measured(kind, samples)]
    publish("reads", f"Reads over {samples / 1e6:g} million samples, beside bare SQL", rows, _MORE)


def measured(kind: str, samples: int) -> list[Row]:
    """Return the rows of one kind of database."""
    with services.database(kind) as at:
        prepare(at.url)
        now = datetime.now(UTC).replace(microsecond=0)
        with closing(SqlStores(at.url)) as stores:
            for first in range(0, JOBS, TOGETHER):
                with stores.transaction() as tx:
                    fill(tx, range(first, first + TOGETHER), samples // JOBS, now)
        bare = _bare(at)
        bare("ANALYZE", ())
        with services.brain(at) as (brain, service):
            services.settle(brain)
            return list(_compared(kind, service, bare, now))


def fill(tx: Transaction, numbers: range, samples: int, now: datetime) -> None:
    """Store jobs with their samples until now, each on its own node; store also the nodes.

    Each job has the values that a page shows in production: world, replica, decision and
    throughput.
    """
    share = NODES // JOBS
    begin = now - timedelta(seconds=PERIOD * samples)
    for number in numbers:
        id, where = job_id(number), NodeName(f"node-{number * share:05}")
        for each in range(number * share, (number + 1) * share):
            capacity = Resources(cpu_millis=128_000, memory_bytes=2**40, gpus=8)
            tx.nodes.put(replace(node(f"node-{each:05}"), capacity=capacity, seen_at=now))
        told = job(id, state=JobState.RUNNING, created_at=begin, updated_at=begin)
        tx.jobs.add(replace(told, document=document(f"job-{number}")))
        formed = world(job=id, formed_at=begin, stepping_at=begin)
        (member,) = formed.members
        tx.worlds.put(replace(formed, members=(replace(member, node=where),)))
        tx.worlds.put_replicas(id, [replica(node=where, started_at=begin)])
        tx.plans.decide(id, recommendation(1))
        sent = [
            throughput(
                each,
                job=id,
                source=f"worker-{number}",
                measured_at=begin + timedelta(seconds=PERIOD * (each + 1)),
                step_seconds_mean=0.1 + each % 97 * 1e-4,
            )
            for each in range(samples)
        ]
        tx.telemetry.add(sent, received_at=now)


def job_id(number: int) -> JobId:
    """Return the id of a job of the fleet."""
    return JobId(f"0197f000-0000-7000-8000-{number:012d}")


Ask = Callable[[str, Sequence[object]], object]


def _bare(at: Database) -> Ask:
    """A connection of the driver itself: executes and fetches."""
    if at.pids:
        connection = psycopg.connect(at.url, autocommit=True)

        def ask(statement: str, given: Sequence[object]) -> object:
            cursor = connection.execute(statement.encode(), given)
            return cursor.fetchall() if cursor.description else None

        return ask
    file = sqlite3.connect(sa.make_url(at.url).database or "")
    return lambda statement, given: file.execute(statement.replace("%s", "?"), given).fetchall()


def _compared(kind: str, service: Service, bare: Ask, now: datetime) -> list[Row]:
    where, token = urlsplit(service.url), service.token("admin")
    with closing(HTTPConnection(where.hostname or "", where.port)) as http:

        def get(path: str) -> Any:
            http.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = http.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return body

        def pages(path: str) -> int:
            count, following = 0, ""
            while True:
                page = wire.decode(get(f"{path}?page_size=500&page_token={following}"), dict)
                count += len(page["items"])
                following = page["next_page_token"]
                if not following:
                    return count

        def hour(number: int) -> None:
            get(f"/api/v1/jobs/{job_id(number % JOBS)}/series?width=600")

        def bare_hour(number: int) -> None:
            since = int((now - timedelta(hours=1)).timestamp()) // 300
            bare(_HOUR, (job_id(number % JOBS), since))

        def bare_list(_: int) -> None:
            since = int((now - timedelta(minutes=1)).timestamp())
            bare(_LIST, (since // 300, since * 1_000_000))

        assert pages("/api/v1/jobs") == JOBS
        assert pages("/api/v1/nodes") == NODES
        return [
            _row(kind, "an hour of a job's throughput", OF_A_JOB, hour, bare_hour),
            _row(
                kind,
                f"the list of {JOBS:,} jobs",
                OF_A_LIST,
                lambda _: pages("/api/v1/jobs"),
                bare_list,
            ),
            _row(
                kind,
                f"the list of {NODES:,} nodes",
                OF_A_LIST,
                lambda _: pages("/api/v1/nodes"),
                lambda _: bare(_NODES, ()),
            ),
        ]


def _row(
    kind: str,
    what: str,
    count: int,
    ours: Callable[[int], object],
    theirs: Callable[[int], object],
) -> Row:
    taken = [(_seconds(ours, number * 7), _seconds(theirs, number * 7)) for number in range(count)]
    mine, bare = (sorted(each) for each in zip(*taken, strict=True))
    at = min(count - 1, count * 99 // 100)
    return Row(
        metric=f"{kind}: {what}, 99th percentile",
        value=1000 * mine[at],
        unit="ms",
        peer="bare SQL",
        peer_value=1000 * bare[at],
        ratio_bar=1 / BAR,
        note=f"{count} times; median {1000 * mine[count // 2]:.1f} ms, "
        f"of the peer {1000 * bare[count // 2]:.1f} ms",
    )


def _seconds(ask: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    ask(number)
    return time.perf_counter() - began


_MORE = """
Each job has one rank and one world, and no plan. The service signs in, reads, checks and encodes,
over HTTP on one connection; lists come in pages of 500. The peer's statement only fetches the rows:
it encodes nothing. The stores wrote the samples, not the route. The benchmark and the service share
the processors.
"""

if __name__ == "__main__":
    main()
