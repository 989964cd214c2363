"""Between the programs: long polls and reports."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from brain import calls, wire
from brain.api import auth, views
from brain.client import AsyncBrainClient
from brain.errors import BadInput, UnknownVersion
from brain.types.job import JobId, JobState
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import Role
from brain.types.resources import PoolName
from brain.types.world import Cause, ReplicaReport, WorldEvent, WorldReport
from tests.api.app import Api, digits
from tests.builders import at, node, replica, world
from tests.fleets import fill, job_id


def _report(job: str, event: WorldEvent, **fields: Any) -> WorldReport:
    made = {"epoch": 1, "generation": 0, "cause": Cause.START, "members": world().members}
    return WorldReport(job=job, event=event, **({"at": world().formed_at} | made | fields))  # type: ignore[arg-type]


def _job(api: Api) -> str:
    with api.client() as admin:
        return str(admin.send(calls.submit(digits())).id)


async def _etag(client: AsyncBrainClient, job: str) -> str:
    wish = await client.send(calls.world(job))
    assert wish is not None
    return f'"{wish.etag}"'


def test_a_poll_that_knows_nothing_is_answered_at_once(api: Api) -> None:
    job = _job(api)
    with api.client(Role.AGENT, job=job) as agent:
        wish = agent.send(calls.world(job))
    assert wish is not None
    assert (wish.replicas, wish.generation) == (0, 0)


def test_a_poll_ends_unchanged_after_its_wait(api: Api) -> None:
    job = _job(api)

    async def polled() -> object:
        async with api.aclient(Role.AGENT, job=job) as agent:
            etag = await _etag(agent, job)
            return await agent.send(calls.world(job, etag=etag, wait_seconds=0.05))

    assert asyncio.run(polled()) is None


def test_a_poll_wakes_when_the_wish_changes(api: Api) -> None:
    job = _job(api)

    async def polled() -> Any:
        async with api.aclient(Role.AGENT, job=job) as agent, api.aclient() as admin:
            etag = await _etag(agent, job)
            poll = asyncio.create_task(agent.send(calls.world(job, etag=etag, wait_seconds=30)))
            await asyncio.sleep(0)
            await admin.send(calls.freeze(FreezeScope.ALL, "", why="maintenance"))
            began = time.monotonic()
            return await poll, time.monotonic() - began

    wish, seconds = asyncio.run(polled())
    assert wish.frozen
    assert seconds < 20  # of the poll's 30


def test_a_scaler_hears_of_a_new_job(api: Api) -> None:
    async def polled() -> Any:
        async with api.aclient(Role.SCALER) as scaler, api.aclient() as admin:
            none = await scaler.send(calls.wishes("local"))
            assert none is not None
            poll = asyncio.create_task(
                scaler.send(calls.wishes("local", etag=f'"{none.version}"', wait_seconds=30))
            )
            await asyncio.sleep(0)
            await admin.send(calls.submit(digits(environment={"KEY": "s3cr3t"})))
            return await poll

    found = asyncio.run(polled())
    assert [wish.name for wish in found.jobs] == ["digits"]
    assert found.jobs[0].document["environment"] == {"KEY": ""}


def test_many_polls_leave_the_service_free(api: Api) -> None:
    """More pollers than the thread pool has threads wait, and a request is answered meanwhile."""
    job = _job(api)

    async def polled() -> float:
        async with api.aclient(Role.AGENT, job=job) as agent, api.aclient() as admin:
            etag = await _etag(agent, job)
            polls = [
                asyncio.create_task(agent.send(calls.world(job, etag=etag, wait_seconds=30)))
                for _ in range(80)
            ]
            await asyncio.sleep(0.5)
            began = time.monotonic()
            await admin.send(calls.health())
            seconds = time.monotonic() - began
            api.context.bell.close()
            await asyncio.gather(*polls)
            return seconds

    assert asyncio.run(polled()) < 20  # of the 30 that one of them waits


def test_a_reported_world_moves_the_job_and_repeating_it_changes_nothing(api: Api) -> None:
    job = _job(api)
    with api.stores.transaction() as tx:
        queued = tx.jobs.get(job)
        tx.jobs.put(queued.moved(JobState.STARTING, "fits", api.now))
    with api.client(Role.AGENT, job=job) as agent, api.client() as admin:
        for _ in range(2):
            agent.send(calls.report_world(_report(job, WorldEvent.FORMED)))
        detail = admin.send(calls.job(job))
        kinds = [event.kind for event in admin.send(calls.job_events(job)).items]
    assert (detail.job.state, detail.job.epoch) == (JobState.RUNNING, 1)
    assert kinds.count("world.formed") == 1


def test_reported_replicas_are_shown(api: Api) -> None:
    job = _job(api)
    report = ReplicaReport(job=job, replicas=(replica(),), at=api.now)  # type: ignore[arg-type]
    with api.client(Role.SCALER) as scaler, api.client() as admin:
        scaler.send(calls.report_replicas(report))
        detail = admin.send(calls.job(job))
    assert detail.replicas == (replica(),)


def test_a_report_of_an_unknown_version_names_the_remedy(api: Api) -> None:
    job = _job(api)
    report = _report(job, WorldEvent.FORMED, v=7)
    with api.client(Role.AGENT, job=job) as agent, pytest.raises(UnknownVersion, match="v 7"):
        agent.send(calls.report_world(report))


def test_a_report_of_another_job_than_the_path_is_refused(api: Api) -> None:
    job = _job(api)
    with api.http(api.token(Role.AGENT, job=job)) as http:
        body = {"v": 1, "job": "other", "replicas": [], "at": "2026-01-01T12:00:00Z"}
        other = http.post(f"/api/v1/jobs/{job}/world", json=body)
    assert other.status_code == 422


def test_a_minted_agent_token_is_of_its_job(api: Api) -> None:
    job = _job(api)
    with api.client(Role.SCALER) as scaler:
        minted = scaler.send(calls.mint_agent_token(job))
    with api.http(minted.secret) as agent:
        assert agent.get(f"/api/v1/jobs/{job}/world").status_code == 200


def test_a_node_is_registered_on_service_time(api: Api) -> None:
    with api.client(Role.SCALER) as scaler, api.client() as admin:
        scaler.send(calls.put_node(node(seen_at=at(-5000))))
        found = admin.send(calls.nodes()).items
    assert (found[0].ready, found[0].seen_at) == (True, api.now)


def test_a_node_of_which_nothing_is_heard_is_silent_and_no_capacity(api: Api) -> None:
    with api.client(Role.SCALER) as scaler, api.client() as admin:
        scaler.send(calls.put_node(node("gone", cpus=64)))
        api.pass_time(seconds=60)
        scaler.send(calls.put_node(node("here", cpus=2)))
        found = admin.send(calls.nodes()).items
        pool = admin.send(calls.pool("local"))
    assert [(each.name, each.ready) for each in found] == [("gone", False), ("here", True)]
    assert (pool.nodes, pool.capacity.cpu_millis) == (1, 2000)


def test_a_node_that_is_back_hurries_the_next_turn(api: Api) -> None:
    with api.client(Role.SCALER) as scaler:
        scaler.send(calls.put_node(node()))
        woken = api.woken
        scaler.send(calls.put_node(node()))
        assert api.woken == woken
        api.pass_time(seconds=60)
        scaler.send(calls.put_node(node()))
    assert api.woken == woken + 1


def test_what_is_only_repeated_hurries_nobody(api: Api) -> None:
    job = _job(api)
    report = ReplicaReport(job=job, replicas=(replica(),), at=api.now)  # type: ignore[arg-type]
    with api.client(Role.SCALER) as scaler:
        for call in (calls.put_node(node("other")), calls.report_replicas(report)):
            before = api.woken
            scaler.send(call)
            first, rings = api.woken, api.context.bell.rings
            scaler.send(call)

            assert (first > before, api.woken - first) == (True, 0)
            assert api.context.bell.rings == rings


def test_jobs_of_a_version_that_is_known_are_not_read_again(api: Api) -> None:
    _job(api)
    with api.stores.transaction(read_only=True) as tx:
        found = views.wishes(tx, PoolName("local"), api.settings)
        again = views.wishes(tx, PoolName("local"), api.settings, known=found.version)

    assert (len(found.jobs), again.jobs, again.version) == (1, (), found.version)


def test_the_version_of_a_pool_is_made_of_its_desired_worlds(api: Api) -> None:
    fill(api.stores, 8)
    with api.stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(job_id(1)), reason="it waits"))
        tx.jobs.put(replace(tx.jobs.get(job_id(5)), pool=PoolName("other")))
        tx.plans.put(tx.plans.get(job_id(0), 2))
        project = Freeze(scope=FreezeScope.PROJECT, target="vision", by="ada", why="", at=at(0))
        for freeze in ((), (project,)):
            for one in freeze:
                tx.freezes.put(one)
            found = views.wishes(tx, PoolName("local"), api.settings)
            marks = [(each.job, str(each.state), each.wish.version) for each in found.jobs]
            assert found.version == auth.sha256(wire.encode(marks))[:16]
            assert sum(each.wish.frozen for each in found.jobs) == 1 + len(freeze)
    assert len(found.jobs) == 5


def test_a_node_of_another_name_than_the_path_is_refused(api: Api) -> None:
    call = replace(calls.put_node(node("other")), path="/api/v1/nodes/laptop")
    with api.client(Role.SCALER) as scaler, pytest.raises(BadInput, match="differs from 'laptop'"):
        scaler.send(call)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"members": world(replicas=20_000).members}, "20000 members are more than the 4"),
        ({"epoch": 2**62}, "epoch 4611686018427387904 is not possible for job digits"),
        ({"epoch": -1}, "epoch -1 is not possible"),
    ],
)
@pytest.mark.parametrize("event", [WorldEvent.FORMED, WorldEvent.MEMORY])
def test_a_world_that_the_job_cannot_have_is_refused(
    api: Api, event: WorldEvent, fields: dict[str, Any], says: str
) -> None:
    job = _job(api)
    with api.client(Role.AGENT, job=job) as agent:
        agent.send(calls.report_world(_report(job, WorldEvent.FORMED)))
        with pytest.raises(BadInput, match=says):
            agent.send(calls.report_world(_report(job, event, **fields)))
    with api.stores.transaction() as tx:
        latest = tx.worlds.latest(JobId(job))
    assert latest is not None
    assert (latest.epoch, latest.replicas) == (1, 1)


def test_a_world_of_replicas_that_were_started_before_bounds_shrank_is_taken(api: Api) -> None:
    job = _job(api)
    started = ReplicaReport(job=JobId(job), replicas=tuple(map(replica, range(6))), at=at(0))
    with api.client(Role.SCALER) as scaler:
        scaler.send(calls.report_replicas(started))
        formed = _report(job, WorldEvent.FORMED, members=world(replicas=6).members)
        scaler.send(calls.report_world(formed))
    with api.client() as admin:
        assert admin.send(calls.job(job)).world.epoch == 1


def test_a_wish_names_the_submitter_whose_job_is_kept_apart_where_it_can_be(api: Api) -> None:
    def members() -> dict[str, str | None]:
        with api.client(Role.SCALER) as scaler:
            wished = scaler.send(calls.wishes(PoolName("local")))
        assert wished is not None
        return {job.name: job.member for job in wished.jobs}

    with api.client() as admin, api.client(Role.OPERATOR, name="ada") as ada:
        admin.send(calls.submit(digits(name="own")))
        ada.send(calls.submit(digits(name="kept")))
    assert members() == {"own": None, "kept": "ada"}

    api.app.state.context = replace(api.context, submitters="this kernel has no Landlock")
    assert members() == {"own": None, "kept": None}
