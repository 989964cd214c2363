"""Requests that need a cluster's rights go to the scaler of its pool, and its answers come back."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from brain import calls, errors
from brain.api.bell import Bell
from brain.api.relay import ScalerRelay
from brain.types.job import JobCopy, JobId
from brain.types.record import Role
from brain.types.resources import PoolName
from brain.views import (
    LogsRequest,
    PodRequest,
    PodSeen,
    RelayedError,
    ScalerAnswer,
    ScalerRequest,
    SubmitRequest,
)
from tests.api.app import Api, digits
from tests.builders import node

POOL = PoolName("kubernetes")
Answers = Callable[[ScalerRequest], list[ScalerAnswer]]


@pytest.fixture
def api(api: Api) -> Api:
    """One with the node of a cluster."""
    with api.stores.transaction() as tx:
        tx.nodes.put(node("n0", pool=POOL, seen_at=api.now))
    return api


@contextmanager
def scaler(api: Api, answers: Answers) -> Iterator[list[ScalerRequest]]:
    """A scaler that answers one request; yields what it was asked."""
    asked: list[ScalerRequest] = []

    def serve() -> None:
        with api.client(Role.SCALER) as client:
            for request in client.send(calls.scaler_requests(POOL, wait_seconds=30)).items:
                asked.append(request)
                for answer in answers(request):
                    client.send(calls.answer_request(POOL, request.id, answer))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        thread.join(60)


def made(api: Api, **document: Any) -> ScalerAnswer:
    """What a scaler does that makes an object: Brain hears of it under the object's uid."""
    copy = JobCopy(document=digits(**document), pool=POOL, owner="ada")
    with api.client(Role.SCALER) as client:
        client.send(calls.mirror("uid-1", copy))
    return ScalerAnswer(job="uid-1")  # type: ignore[arg-type]


def test_a_submission_to_a_cluster_is_made_there_and_has_its_objects_uid(api: Api) -> None:
    document = digits(image="i", environment={"TOKEN": "secret"})
    with (
        scaler(api, lambda request: [made(api)]) as asked,
        api.client(Role.SUBMITTER, name="ada") as client,
    ):
        view = client.send(calls.submit(document, pool=POOL))
    assert (view.id, view.pool) == ("uid-1", POOL)
    submit = asked[0].submit
    assert submit is not None
    assert (submit.owner, submit.document["environment"]) == ("ada", {"TOKEN": "secret"})
    with api.stores.transaction(read_only=True) as tx:
        assert tx.access.secrets(view.id) is None


def test_the_pool_need_not_be_named_where_it_is_the_only_one(api: Api) -> None:
    with scaler(api, lambda request: [made(api)]), api.client() as client:
        assert client.send(calls.submit(digits(image="i"))).pool == POOL


def test_a_dry_run_asks_the_cluster_and_keeps_nothing(api: Api) -> None:
    with scaler(api, lambda request: [ScalerAnswer()]) as asked, api.client() as client:
        view = client.send(calls.submit(digits(image="i"), pool=POOL, dry_run=True))
        assert client.send(calls.jobs()).items == ()
    assert view.state == "Queued"
    assert isinstance(asked[0].submit, SubmitRequest)
    assert asked[0].submit.dry_run


def test_what_the_scaler_refuses_is_refused_in_its_words_by_class_and_field(api: Api) -> None:
    refusal = RelayedError(kind="BadInput", detail="image is missing; name one", field="image")
    with (
        scaler(api, lambda request: [ScalerAnswer(refusal=refusal)]),
        api.client() as client,
        pytest.raises(errors.BadInput, match="name one") as refused,
    ):
        client.send(calls.submit(digits(), pool=POOL))
    assert refused.value.field == "image"


def test_what_brain_refuses_is_asked_of_no_cluster(api: Api) -> None:
    with api.client() as client, pytest.raises(errors.ImpossibleBounds):
        client.send(calls.submit(digits(replicas={"min": 3, "max": 2}), pool=POOL))


def test_a_pool_without_a_scaler_is_refused_with_those_that_have_one(api: Api) -> None:
    with (
        api.client() as client,
        pytest.raises(errors.BadInput, match="pools with a scaler: kubernetes") as refused,
    ):
        client.send(calls.submit(digits(), pool="elsewhere"))
    assert refused.value.field == "pool"


def test_several_pools_have_to_be_told_apart(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.nodes.put(node("m0", pool=PoolName("other"), seen_at=api.now))
    with api.client() as client, pytest.raises(errors.BadInput, match="kubernetes, other"):
        client.send(calls.submit(digits()))


def test_logs_of_a_cluster_come_in_parts_and_end_with_the_last(api: Api) -> None:
    made(api)
    parts = [ScalerAnswer(text=f"{n}\n", more=n < 9) for n in range(10)]
    with scaler(api, lambda request: parts) as asked, api.client() as client:
        said = client.send(calls.logs("uid-1", follow=True))
    assert said.decode().split() == [str(n) for n in range(10)]
    assert asked[0].logs == LogsRequest(job=asked[0].logs.job, tail=10_000, follow=True)  # type: ignore[union-attr]


def test_a_log_that_is_cut_says_so_and_one_that_cannot_be_read_is_refused(api: Api) -> None:
    made(api)
    gone = ScalerAnswer(refusal=RelayedError(kind="UnknownReplica", detail="its pod is gone"))
    with scaler(api, lambda r: [ScalerAnswer(text="one\n", more=True), gone]), api.client() as c:
        assert c.send(calls.logs("uid-1")).endswith(
            b"brain: the output ends here: its pod is gone\n"
        )
    with scaler(api, lambda r: [gone]), api.client() as c, pytest.raises(errors.UnknownReplica):
        c.send(calls.logs("uid-1"))


def test_only_scalers_take_requests(api: Api) -> None:
    with api.client(Role.ADMIN) as client, pytest.raises(errors.NotAllowed):
        client.send(calls.scaler_requests(POOL))


async def _first(relay: ScalerRelay) -> ScalerAnswer:
    return await anext(relay.ask(POOL, ScalerRequest(id="")))


async def _there() -> bool:
    return False


async def _gone() -> bool:
    return True


def test_a_request_that_no_scaler_takes_is_given_up_with_the_remedy() -> None:
    relay = ScalerRelay(Bell(), taken_seconds=0.01)
    with pytest.raises(errors.Unavailable, match="no scaler of pool kubernetes takes requests"):
        asyncio.run(_first(relay))


def test_a_scaler_that_took_a_request_and_died_is_told_apart() -> None:
    relay = ScalerRelay(Bell(), answered_seconds=0.01)

    async def run() -> None:
        asking = asyncio.create_task(_first(relay))
        assert len(await relay.take(POOL, 5, _there)) == 1
        with pytest.raises(errors.Unavailable, match="took the request but has not answered"):
            await asking

    asyncio.run(run())


def test_a_poll_whose_scaler_is_gone_takes_nothing() -> None:
    relay = ScalerRelay(Bell())

    async def run() -> None:
        asking = asyncio.create_task(_first(relay))
        await asyncio.sleep(0)
        assert await relay.take(POOL, 0, _gone) == ()
        (request,) = await relay.take(POOL, 5, _there)
        await relay.answer(POOL, request.id, ScalerAnswer(text="x"))
        assert (await asking).text == "x"

    asyncio.run(run())


def test_an_answer_waits_for_its_reader_and_is_refused_once_that_left() -> None:
    relay = ScalerRelay(Bell(), answered_seconds=5)

    async def run() -> None:
        parts = relay.ask(POOL, ScalerRequest(id=""))
        first = asyncio.ensure_future(anext(parts))
        (request,) = await relay.take(POOL, 5, _there)
        more = ScalerAnswer(text="x", more=True)
        await relay.answer(POOL, request.id, more)
        assert (await first).text == "x"
        for _ in range(4):
            await relay.answer(POOL, request.id, more)
        waiting = asyncio.create_task(relay.answer(POOL, request.id, more))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await parts.aclose()
        with pytest.raises(errors.NotFound, match="no client is waiting"):
            await waiting

    asyncio.run(run())


def test_an_answer_whose_reader_takes_no_more_is_refused() -> None:
    relay = ScalerRelay(Bell(), answered_seconds=0.05)

    async def run() -> None:
        parts = relay.ask(POOL, ScalerRequest(id=""))
        first = asyncio.ensure_future(anext(parts))
        (request,) = await relay.take(POOL, 5, _there)
        more = ScalerAnswer(text="x", more=True)
        await relay.answer(POOL, request.id, more)
        await first
        for _ in range(4):
            await relay.answer(POOL, request.id, more)
        with pytest.raises(errors.NotFound, match="drop the answer"):
            await relay.answer(POOL, request.id, more)
        await parts.aclose()

    asyncio.run(run())


def test_an_agent_is_told_what_the_cluster_says_of_its_pod(api: Api) -> None:
    made(api)
    seen = PodSeen(stays=False, detail="its pod was deleted from the cluster")
    with (
        scaler(api, lambda request: [ScalerAnswer(pod=seen)]) as asked,
        api.client(Role.AGENT, job="uid-1") as agent,
    ):
        assert agent.send(calls.pod("uid-1", 3)) == seen
    assert asked[0].pod == PodRequest(job=JobId("uid-1"), replica=3)


def test_a_scaler_that_knows_no_pods_proves_nothing(api: Api) -> None:
    made(api)
    with (
        scaler(api, lambda request: [ScalerAnswer()]),
        api.client(Role.AGENT, job="uid-1") as agent,
        pytest.raises(errors.Unavailable, match="upgrade the operator"),
    ):
        agent.send(calls.pod("uid-1", 3))


def test_an_agent_asks_for_no_pod_of_another_job(api: Api) -> None:
    made(api)
    with (
        api.client(Role.AGENT, job="other") as agent,
        pytest.raises(errors.NotAllowed, match="another job"),
    ):
        agent.send(calls.pod("uid-1", 3))


def test_on_one_machine_there_are_no_pods_to_ask_for(api: Api) -> None:
    with api.client() as client:
        id = client.send(calls.submit(digits(), pool="local")).id
    with (
        api.client(Role.AGENT, job=id) as agent,
        pytest.raises(errors.BadInput, match="pool local has no pods"),
    ):
        agent.send(calls.pod(id, 0))
