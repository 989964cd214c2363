"""The door to the API server: what it sends again, what it refuses, what its errors say."""

import threading
from random import Random

import pytest

from brain.errors import BrainError, NotAllowed, NotSignedIn, TooLarge, Unavailable
from scaler.kubernetes.runtime.cluster import (
    LEASE,
    POD,
    AlreadyExists,
    ClientLimits,
    Cluster,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotLeading,
    TooMany,
    Unreachable,
    WatchStream,
)
from scaler.kubernetes.runtime.cluster.errors import failure
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer
from tests.kubernetes.shelf import THING, Lines, Shelf, VirtualClock, event, refused, thing

EXACT = ClientLimits(in_flight=3)


def door(shelf: Shelf, clock: VirtualClock | None = None, limits: ClientLimits = EXACT) -> Cluster:
    clock = clock or VirtualClock()
    return Cluster(shelf, limits, clock=clock, random=Random(1), sleep=clock.sleep)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", NotSignedIn),
        (403, "Forbidden", Forbidden),
        (403, "Forbidden", NotAllowed),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (413, "RequestEntityTooLarge", TooLarge),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooMany),
        (500, "InternalError", Unreachable),
        (503, "ServiceUnavailable", Unavailable),
    ],
)
def test_an_answer_becomes_an_error_of_the_domain(
    code: int, reason: str, error: type[BrainError]
) -> None:
    answer = refused(code, reason)
    why = failure(answer.code, answer.body, answer.headers, "get /things/a")
    assert isinstance(why, error)
    assert f"get /things/a: no, {reason} ({code})" in str(why)


def test_an_invalid_object_names_its_causes() -> None:
    answer = refused(
        422, "Invalid", causes=[{"field": "spec.replicas", "message": "must be ≥ 0", "reason": "X"}]
    )
    why = failure(422, answer.body, {}, "create /things")
    assert isinstance(why, Invalid)
    assert (why.field, why.causes[0].message) == ("spec.replicas", "must be ≥ 0")


def test_a_page_of_a_proxy_is_no_answer() -> None:
    shelf = Shelf()
    shelf.faults.append(TransportAnswer(code=200, body=b"<html>", headers={}))
    with pytest.raises(Unreachable, match="does not come from a Kubernetes API server"):
        door(shelf).get(THING, "team", "a")


def test_too_many_is_sent_again_after_what_the_server_asks() -> None:
    shelf, clock = Shelf(), VirtualClock()
    shelf.faults.append(refused(429, after=3.0))
    door(shelf, clock).create(THING, thing("a"))
    assert len(shelf.asked("POST")) == 2
    assert clock.seconds >= 3.0


def test_a_server_that_asks_for_more_patience_than_there_is_is_an_error_at_once() -> None:
    shelf, clock = Shelf(), VirtualClock()
    shelf.faults.append(refused(429, after=60.0))
    with pytest.raises(TooMany) as caught:
        door(shelf, clock).create(THING, thing("a"))
    assert caught.value.retry_after_seconds == 60.0
    assert clock.seconds == 0.0


def test_a_creation_whose_answer_was_lost_is_not_sent_again() -> None:
    shelf = Shelf()
    shelf.faults.append(Unreachable("lost"))
    with pytest.raises(Unreachable):
        door(shelf).create(THING, thing("a"))
    assert len(shelf.asked("POST")) == 1


def test_an_apply_whose_answer_was_lost_is_sent_again() -> None:
    shelf = Shelf()
    shelf.faults.extend([Unreachable("lost"), refused(500)])
    assert door(shelf).apply(THING, thing("a"))["metadata"]["name"] == "a"
    assert len(shelf.asked("PATCH")) == 3


def test_a_budget_that_forbids_an_eviction_is_told_at_once() -> None:
    shelf, clock = Shelf(), VirtualClock()
    shelf.faults.append(refused(429, after=1.0))
    with pytest.raises(TooMany):
        door(shelf, clock).evict("team", "a-0")
    assert clock.seconds == 0.0


def test_what_stays_away_is_given_up_after_a_few_attempts() -> None:
    shelf = Shelf()
    shelf.faults.extend([Unreachable("away")] * 99)
    with pytest.raises(Unreachable, match="away"):
        door(shelf).get(THING, "team", "a")
    assert len(shelf.asked("get")) == EXACT.attempts


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    shelf = Shelf()
    shelf.put(thing("a"))
    inside, most, lock, release = 0, 0, threading.Lock(), threading.Event()

    def gate(request: object) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == EXACT.in_flight - 1:
                release.set()
        release.wait(20.0)
        with lock:
            inside -= 1

    shelf.gate = gate
    cluster = door(shelf)
    threads = [
        threading.Thread(target=cluster.get, args=(THING, "team", "a"), daemon=True)
        for _ in range(9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert most == EXACT.in_flight - 1


def test_a_lease_is_renewed_while_all_else_waits_for_the_server() -> None:
    shelf, stuck = Shelf(), threading.Event()
    shelf.put(thing("a"))
    shelf.put({"metadata": {"namespace": "team", "name": "l"}}, LEASE)
    full = threading.Semaphore(0)

    def gate(request: object) -> None:
        if "things" in str(request):
            full.release()
            stuck.wait(20.0)

    shelf.gate = gate
    cluster = door(shelf)
    threads = [
        threading.Thread(target=cluster.get, args=(THING, "team", "a"), daemon=True)
        for _ in range(EXACT.in_flight)
    ]
    for thread in threads:
        thread.start()
    for _ in range(EXACT.in_flight - 1):
        assert full.acquire(timeout=20.0)
    assert cluster.get(LEASE, "team", "l")["metadata"]["name"] == "l"
    stuck.set()
    for thread in threads:
        thread.join(20.0)


def test_a_write_is_given_up_before_the_lease_ends() -> None:
    shelf = Shelf()
    door(shelf).fenced(lambda: 2.5).apply(THING, thing("a"))
    assert shelf.seconds == [2.5]


def test_who_does_not_lead_reads_but_does_not_write() -> None:
    shelf = Shelf()
    shelf.put(thing("a"))

    def none_left() -> float:
        raise NotLeading("over")

    fenced = door(shelf).fenced(none_left)
    assert fenced.get(THING, "team", "a")["kind"] == "Thing"
    with pytest.raises(NotLeading):
        fenced.delete(THING, "team", "a", uid="uid-1")
    assert shelf.asked("DELETE") == []


def test_a_watch_gives_events_across_pieces_of_lines() -> None:
    line = event("ADDED", thing("a")) + event("BOOKMARK", thing(""))
    watch = WatchStream(Lines([line[:10], line[10:-5], line[-5:]]), "watch things")
    assert [each.type for each in watch] == ["ADDED", "BOOKMARK"]


def test_a_watch_cut_in_a_line_gives_what_came_whole() -> None:
    watch = iter(WatchStream(Lines([event("ADDED", thing("a")) + b'{"type":"ADD']), "watch things"))
    assert next(watch).object["metadata"]["name"] == "a"
    with pytest.raises(Unreachable, match="middle of a line"):
        next(watch)


def test_an_error_in_a_watch_is_raised() -> None:
    watch = WatchStream(
        Lines([event("ERROR", {"code": 410, "message": "too old"})]), "watch things"
    )
    with pytest.raises(Gone, match="too old"):
        list(watch)


def test_items_of_lists_say_what_they_are() -> None:
    shelf = Shelf()
    shelf.put({"metadata": {"namespace": "team", "name": "a-0"}}, POD)
    (item,) = door(shelf).list(POD, "team").items
    assert (item["apiVersion"], item["kind"]) == ("v1", "Pod")


def test_names_cannot_leave_their_place_in_a_path() -> None:
    assert POD.path("team", "../secrets") == "/api/v1/namespaces/team/pods/..%2Fsecrets"


def test_an_observer_hears_of_every_answer_and_of_none() -> None:
    shelf, heard = Shelf(), list[tuple[str, int]]()
    shelf.put(thing("a"))
    shelf.faults.append(Unreachable("lost"))
    cluster = door(shelf).observed(lambda verb, code, seconds: heard.append((verb, code)))
    cluster.get(THING, "team", "a")
    assert heard == [("get", 0), ("get", 200)]
