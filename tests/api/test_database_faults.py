"""A database that fails at any statement is 503, and nothing that was measured is lost."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from brain import calls, wire
from brain.client import Call
from brain.db import SqlStores
from brain.types.job import JobCopy, JobId
from brain.types.pool import FreezeScope
from brain.types.record import Role
from brain.types.resources import NodeName, PoolName
from brain.types.world import Cause, ReplicaReport, WorldEvent, WorldReport
from brain.views import PlanDecision, ResizeRequest
from collectors.delivery import Delivery
from collectors.spool import Spool
from tests.api.app import Api, digits
from tests.api.served import served
from tests.builders import NOW, at, host, node, plan, replica, throughput, world
from tests.database_faults import HARMS, Driver, driven
from tests.postgresql import Server


@pytest.fixture
def api(tmp_path: Path, postgresql_url: str) -> Iterator[Api]:
    """An app over an empty PostgreSQL database."""
    with closing(SqlStores(postgresql_url)) as stores:
        yield Api(tmp_path, stores=stores, now=datetime.now(UTC))


@pytest.fixture
def driver(postgresql: Server) -> Iterator[Driver]:
    """What stands between the app and its database."""
    with driven(postgresql) as made:
        yield made


class Sender:
    """The collector's own spool and delivery, at one job."""

    def __init__(self, api: Api, job: JobId, url: str, spool: Path) -> None:
        self._spool, self._job = Spool(spool), job
        token = api.token(Role.AGENT, job=job)
        self.delivery = Delivery(self._spool, url=lambda _: url, token=lambda _: token)
        self.measured, self._since = 0, api.now

    def measure(self) -> None:
        """Put samples of two kinds and several sources into the spool."""
        now = self._since + timedelta(milliseconds=self.measured)
        for rank in range(3):
            sample = throughput(self.measured, job=self._job, rank=rank, measured_at=now)
            self._spool.append(self._job, wire.encode_sample(sample), now=now.timestamp())
        reading = host(self.measured, job=self._job, measured_at=now)
        self._spool.append(self._job, wire.encode_sample(reading), now=now.timestamp())
        self.measured += 1

    @property
    def spooled(self) -> int:
        """Samples that were not acknowledged."""
        batch = self._spool.take(self._job, 1000)
        return 0 if batch is None else len(batch.lines)

    async def turn(self) -> None:
        """One attempt to deliver, or as many as succeed."""
        self.delivery.hurry()
        await self.delivery.turn()


@pytest.mark.parametrize("harm", sorted(HARMS))
def test_a_fault_at_any_statement_leaves_samples_in_the_spool(
    api: Api, driver: Driver, tmp_path: Path, harm: str
) -> None:
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id

    async def drive(url: str) -> int:
        sender = Sender(api, job, url, tmp_path / "spool")
        number = 0
        while True:
            # Tokens are used a minute apart, so that each delivery notes it.
            api.pass_time(minutes=2)
            sender.measure()
            driver.arm(HARMS[harm], at=number)
            await sender.turn()
            if not driver.struck:
                break
            if sender.spooled:
                error = sender.delivery.errors()[job]
                assert error.startswith("Unavailable: "), driver.sent[number]
                assert not any(word in error for word in ("postgresql", "brain@", "host="))
            await sender.turn()
            assert (sender.spooled, sender.delivery.counts.rejected) == (0, 0), driver.sent[number]
            number += 1
        await sender.delivery.close()
        assert number > 5, "every statement was harmed once"
        return sender.measured

    with served(api.app) as url:
        measured = asyncio.run(drive(url))
    driver.arm()
    with api.stores.transaction(read_only=True) as tx:
        since = api.now - timedelta(days=1)
        assert len(tx.telemetry.throughput(job, since=since)) == 3 * measured
        assert len(tx.telemetry.hosts(job, since=since)) == measured


_DIE_AT_THE_FIFTH = """
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid()) WHERE NEW.sequence = 5;
    RETURN NEW;
END;
$$;
CREATE TRIGGER die BEFORE INSERT ON throughput_rows FOR EACH ROW EXECUTE FUNCTION die();
"""


def test_postgresql_that_dies_within_a_batch_is_unavailable(
    api: Api, postgresql: Server, postgresql_url: str
) -> None:
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
    database = postgresql_url.partition("@/")[2].partition("?")[0]
    batch = wire.encode_batch([throughput(n, job=job) for n in range(10)], sent_at=NOW)
    with postgresql.connected(database) as other, api.http(api.token(Role.AGENT, job=job)) as agent:
        other.execute(_DIE_AT_THE_FIFTH)
        try:
            died = agent.post("/api/v1/telemetry", content=batch)
        finally:
            other.execute("DROP FUNCTION die CASCADE")
        again = agent.post("/api/v1/telemetry", content=batch)
    assert (died.status_code, died.headers["retry-after"]) == (503, "1")
    assert again.json() == {"stored": 10, "duplicates": 0, "rejected": []}


def _questions(api: Api) -> list[tuple[Role, Call[Any]]]:
    """Whom and what to ask of each route that answers in one piece; acting changes nothing."""
    api.add_node()
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
        token = admin.send(calls.mint_token("ci", "viewer")).id
    with api.stores.transaction() as tx:
        tx.plans.add(plan(1, job=job, expires_at=api.now + timedelta(days=30)))
        tx.worlds.put(world(job=job))
        tx.worlds.put_replicas(job, [replica()])
    formed = WorldReport(
        job=job,
        event=WorldEvent.FORMED,
        epoch=2,
        generation=0,
        cause=Cause.START,
        members=world().members,
        at=NOW,
    )
    replicas = ReplicaReport(job=job, replicas=(replica(1, node=NodeName("another")),), at=NOW)
    copy = JobCopy(document=digits(name="copy"), pool=PoolName("local"), owner="ada")
    return [
        (Role.ADMIN, calls.jobs()),
        (Role.ADMIN, calls.submit(digits(name="another"))),
        (Role.ADMIN, calls.estimate(digits())),
        (Role.ADMIN, calls.savings()),
        (Role.ADMIN, calls.job(job)),
        (Role.SCALER, calls.mirror("5f0c8f6e-6f4b-4a53-9a53-1d8f3e9a0c11", copy)),
        (Role.ADMIN, calls.cancel(job)),
        (Role.ADMIN, calls.suspend(job)),
        (Role.ADMIN, calls.change_jobs("cancel", [job])),
        (Role.ADMIN, calls.plans_of(job)),
        (Role.ADMIN, calls.resize(job, ResizeRequest(replicas=2))),
        (Role.ADMIN, calls.plans()),
        (Role.ADMIN, calls.approve(job, 1, PlanDecision(why="yes"))),
        (Role.ADMIN, calls.reject(job, 1, PlanDecision(why="no"))),
        (Role.ADMIN, calls.pool("local")),
        (Role.ADMIN, calls.policies()),
        (Role.ADMIN, calls.recommendation(job)),
        (Role.ADMIN, calls.what_if(job)),
        (Role.ADMIN, calls.model(job)),
        (Role.ADMIN, calls.models()),
        (Role.ADMIN, calls.series(job, "step_seconds", since=NOW, until=at(60))),
        (Role.ADMIN, calls.workers(job)),
        (Role.ADMIN, calls.job_events(job)),
        (Role.SCALER, calls.world(job)),
        (Role.SCALER, calls.report_world(formed)),
        (Role.SCALER, calls.report_replicas(replicas)),
        (Role.SCALER, calls.wishes("local")),
        (Role.SCALER, calls.environment(job)),
        (Role.SCALER, calls.mint_agent_token(job)),
        (Role.SCALER, calls.put_node(node("another"))),
        (Role.ADMIN, calls.nodes()),
        (Role.ADMIN, calls.telemetry([throughput(job=job)], sent_at=NOW)),
        (Role.ADMIN, calls.freezes()),
        (Role.ADMIN, calls.freeze(FreezeScope.ALL, "", why="release")),
        (Role.ADMIN, calls.audit()),
        (Role.ADMIN, calls.tokens()),
        (Role.ADMIN, calls.mint_token("another", "viewer")),
        (Role.ADMIN, calls.revoke_token(token)),
        (Role.ADMIN, calls.health()),
        (Role.ADMIN, Call(method="GET", path="/readyz", reads=bytes)),
    ]


def _ask(http: httpx2.Client, call: Call[Any]) -> httpx2.Response:
    acts = call.method != "GET" and not call.path.endswith(("telemetry", ":estimate"))
    query = dict(call.query) | ({"dry_run": "true"} if acts else {})
    key = {"Idempotency-Key": "once"} if acts else {}
    return http.request(call.method, call.path, params=query, content=call.body, headers=key)


@pytest.mark.parametrize(
    "harm", [pytest.param("killed", marks=pytest.mark.slow), "cancelled", "deadlock"]
)
def test_a_fault_at_any_statement_of_any_route_is_unavailable(
    api: Api, driver: Driver, harm: str
) -> None:
    questions = _questions(api)
    # Signing in reads the token, commits, notes the use and commits; only a killed backend shows
    # at commits.
    noting = (2, 3) if harm == "killed" else (1,)
    with api.http(api.token(Role.ADMIN)) as admin, api.http(api.token(Role.SCALER)) as scaler:
        who = {Role.ADMIN: admin, Role.SCALER: scaler}
        for role, call in questions:
            driver.arm()
            well = _ask(who[role], call)
            assert well.status_code < 400, (call.path, well.text)
            for number in itertools.count():
                api.pass_time(minutes=2)
                driver.arm()
                api.add_node()  # one that has not reported for two minutes is no room
                driver.arm(HARMS[harm], at=number)
                answer = _ask(who[role], call)
                if not driver.struck:
                    break
                # A use of a token that cannot be noted is no reason to refuse it.
                # Samples are stored in the transaction that notes it.
                noted_apart = number in noting and "telemetry" not in call.path
                expected = well.status_code if noted_apart else 503
                assert answer.status_code == expected, (
                    call.path,
                    driver.sent[number],
                    answer.text,
                )
                assert not any(word in answer.text for word in ("postgresql", "brain@", "host="))
            assert number >= 2


@pytest.mark.parametrize("harm", ["killed", "cancelled", "deadlock"])
def test_a_fault_at_any_statement_of_the_metrics_is_one_of_them(
    api: Api, driver: Driver, harm: str
) -> None:
    with api.http(api.token(Role.VIEWER)) as viewer:
        assert viewer.get("/metrics").status_code == 200
        for number in itertools.count():
            api.pass_time(minutes=2)
            driver.arm(HARMS[harm], at=number)
            answer = viewer.get("/metrics")
            assert answer.status_code == 200, driver.sent
            assert 'brain_degraded{what="database"} 1.0' in answer.text
            if not driver.struck:
                break
        assert number >= 2


def test_a_source_that_no_index_holds_is_rejected_beside_its_neighbours(api: Api) -> None:
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
        # Not to be packed: PostgreSQL would make it short enough for its index.
        name = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x9FFF), k=5000)))
        samples = [throughput(job=job), throughput(1, job=job, source=name)]
        receipt = admin.send(calls.telemetry(samples, sent_at=NOW))
    assert (receipt.stored, [bad.index for bad in receipt.rejected]) == (1, [1])
    assert "source has 5000 characters" in receipt.rejected[0].reason
