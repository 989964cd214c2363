"""A store stays equal to what the API server has, whatever happens to the watch."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from scaler.kubernetes.runtime.cluster import ClientLimits, Cluster, Key, Unreachable, controller_of
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer
from scaler.kubernetes.runtime.pace import Backoff
from scaler.kubernetes.runtime.reflector import Reflector
from scaler.kubernetes.runtime.store import Store, StoreChange
from tests.kubernetes.shelf import THING, Lines, Shelf, VirtualClock, event, refused, thing

A, B, C = (Key("team", name) for name in "abc")


class Watched:
    """A reflector of things on a shelf, and what it told."""

    def __init__(self, *, page: int = 500, namespace: str = "") -> None:
        self.shelf, self.clock, self.store = Shelf(), VirtualClock(), Store()
        self.changes: list[StoreChange] = []
        cluster = Cluster(
            self.shelf,
            ClientLimits(attempts=1),
            clock=self.clock,
            random=Random(1),
            sleep=lambda s: None,
        )
        self.reflector = Reflector(
            cluster,
            THING,
            self.store,
            clock=self.clock,
            random=Random(1),
            namespace=namespace,
            told=self.changes.append,
            pauses=Backoff(jitter=0.0),
            page=page,
        )

    def steps(self, count: int = 1) -> list[float]:
        """The pauses that so many steps ask for."""
        return [self.reflector.step() for _ in range(count)]

    @property
    def told(self) -> list[tuple[str, bool, bool]]:
        """Name, whether it was known, whether it is there."""
        return [
            (each.key.name, each.old is not None, each.new is not None) for each in self.changes
        ]


def test_pages_are_listed_then_what_changes_is_heard() -> None:
    watched = Watched(page=2)
    for name in "abcde":
        watched.shelf.put(thing(name))
    watched.steps()
    watched.shelf.put(thing("f"))
    watched.steps()
    assert len(watched.shelf.asked("list")) == 3
    assert [key.name for key in watched.store.keys_in()] == list("abcdef")
    assert watched.reflector.synced.is_set()


def test_a_change_and_an_end_are_told_with_what_was_before() -> None:
    watched = Watched()
    watched.shelf.put(thing("a"))
    watched.steps()
    watched.shelf.put(thing("a", spec={"size": 2}))
    watched.shelf.drop("team", "a")
    watched.steps()
    assert watched.told == [("a", False, True), ("a", True, True), ("a", True, False)]


def test_a_cut_watch_goes_on_without_a_list() -> None:
    watched = Watched()
    watched.shelf.put(thing("a"))
    watched.shelf.faults.extend([None, Unreachable("cut")])
    watched.steps()
    watched.shelf.put(thing("b"))
    watched.steps()
    assert len(watched.shelf.asked("list")) == 1
    assert B in watched.store


def test_what_was_deleted_while_nobody_heard_is_found_by_the_next_list() -> None:
    watched = Watched()
    watched.shelf.put(thing("a"))
    watched.shelf.put(thing("b"))
    watched.steps()
    watched.shelf.drop("team", "a")
    watched.shelf.forget()
    watched.steps(2)
    assert watched.store.keys_in() == [B]
    assert watched.told[-1] == ("a", True, False)


def test_a_list_that_brings_nothing_new_tells_nothing() -> None:
    watched = Watched()
    watched.shelf.put(thing("a"))
    watched.steps()
    watched.shelf.forget()
    watched.steps(2)
    assert watched.told == [("a", False, True)]


def test_a_list_may_end_only_what_is_in_its_namespace() -> None:
    watched = Watched(namespace="team")
    watched.store.put(watched.shelf.put(thing("x", namespace="other")))
    watched.shelf.put(thing("a"))
    watched.steps()
    assert set(watched.store.keys_in()) == {A, Key("other", "x")}


def test_a_storm_of_410_slows_the_lists_down() -> None:
    watched = Watched()
    pauses = []
    for _ in range(8):
        watched.shelf.faults.extend([None, refused(410, "Expired")])
        pauses += watched.steps()
        watched.clock.sleep(pauses[-1])
    assert pauses[:4] == [0.3, 0.6, 1.2, 2.4]
    assert pauses[-1] == 30.0


def test_an_outage_slows_attempts_down_to_one_in_5_seconds_and_ends_with_everything_known() -> None:
    watched = Watched()
    watched.shelf.put(thing("a"))
    watched.steps()
    watched.shelf.put(thing("a", spec={}))
    watched.steps()
    watched.shelf.faults.extend([Unreachable("away")] * 8)
    assert watched.steps(8) == [0.3, 0.6, 1.2, 2.4, 4.8, 5.0, 5.0, 5.0]
    assert watched.reflector.trouble == "away"
    watched.shelf.put(thing("b"))
    watched.steps()
    assert B in watched.store
    assert watched.reflector.trouble == ""


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    watched = Watched()
    watched.shelf.faults.append(refused(429, after=17.0))
    assert watched.steps() == [17.0]


def test_a_watch_that_ends_at_once_and_in_silence_is_not_asked_in_a_circle() -> None:
    watched = Watched()
    assert watched.steps(4) == [0.3, 0.6, 1.2, 2.4]


def test_silent_watches_that_stood_for_long_are_followed_by_others_at_once() -> None:
    watched = Watched()
    watched.steps()

    class Silent(Shelf):
        def stream(self, request: Any, **limits: float) -> Lines:
            watched.clock.sleep(0.5)
            return Standing([], cut=True)

    class Standing(Lines):
        def chunks(self) -> Iterator[bytes]:
            watched.clock.sleep(90.0)
            yield from super().chunks()

    watched.reflector._cluster = Cluster(Silent(), clock=watched.clock, random=Random(1))
    assert watched.steps(12) == [0.3] * 12


def test_a_bookmark_moves_the_place_to_go_on_from() -> None:
    watched = Watched()
    watched.steps()
    versions: list[Any] = []

    class Bookmarked(Shelf):
        def stream(self, request: Any, **limits: float) -> Lines:
            versions.append(request.query["resourceVersion"])
            return Lines([event("BOOKMARK", {"metadata": {"resourceVersion": "77"}})], cut=True)

    bookmarked = Bookmarked()
    watched.reflector._cluster = Cluster(bookmarked, clock=watched.clock, random=Random(1))
    watched.steps(2)
    assert versions == ["0", "77"]


def test_who_wrote_which_field_is_not_kept() -> None:
    watched = Watched()
    noted = thing("a")
    noted["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    watched.shelf.put(noted)
    watched.steps()
    kept = watched.store.get(A)
    assert kept is not None
    assert "managedFields" not in kept["metadata"]


def labelled(name: str, version: int, team: str) -> dict[str, Any]:
    obj = thing(name)
    obj["metadata"] |= {"resourceVersion": str(version), "uid": name, "labels": {"team": team}}
    return obj


def by_team(obj: Any) -> list[str]:
    return [obj["metadata"]["labels"]["team"]]


def test_an_index_follows_the_objects() -> None:
    store = Store({"team": by_team})
    store.put(labelled("b", 1, "red"))
    store.put(labelled("a", 2, "red"))
    store.put(labelled("b", 3, "blue"))
    assert [obj["metadata"]["name"] for obj in store.by("team", "red")] == ["a"]
    store.drop(A)
    assert store.by("team", "red") == []


def test_an_index_that_comes_later_finds_what_was_there() -> None:
    store = Store()
    store.put(labelled("a", 1, "red"))
    store.index("team", by_team)
    assert len(store.by("team", "red")) == 1


def test_news_from_before_what_is_known_is_no_news() -> None:
    store = Store()
    store.put(labelled("a", 5, "red"))
    assert store.put(labelled("a", 4, "blue")) is None
    assert by_team(store.get(A)) == ["red"]


def test_a_list_of_a_restored_server_counts_although_its_numbers_are_lower() -> None:
    store = Store()
    store.put(labelled("a", 5, "red"))
    assert store.put(labelled("a", 4, "blue"), listed=True) is not None
    assert by_team(store.get(A)) == ["blue"]


def test_the_first_request_to_go_is_kept_when_the_end_is_confirmed() -> None:
    store = Store()

    def going(version: str, at: str, grace: int, uid: str = "u") -> dict[str, Any]:
        asked = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
        pod = thing("a", status={"phase": "Failed"})
        pod["metadata"] |= {"uid": uid, "resourceVersion": version, **asked}
        return pod

    store.put(going("1", "2026-01-01T12:00:30Z", 30))
    # As a real API server told it: the containers had ended at 12:00:01.
    store.put(going("2", "2026-01-01T12:00:02Z", 0))
    kept = store.get(A)
    assert kept is not None
    assert kept["metadata"]["resourceVersion"] == "2"
    assert kept["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:30Z"
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 30

    store.put(going("3", "2026-01-01T12:00:09Z", 0, uid="another"), listed=True)
    kept = store.get(A)
    assert kept is not None
    assert kept["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:09Z"


def test_an_answer_is_known_at_once_and_the_watch_still_tells_of_it() -> None:
    store = Store()
    store.put(labelled("a", 1, "red"))
    store.learn(labelled("a", 2, "blue"))
    assert by_team(store.get(A)) == ["blue"]
    change = store.put(labelled("a", 2, "blue"))
    assert change is not None
    assert change.old is not None
    assert by_team(change.old) == ["red"]


def test_an_answer_does_not_bring_back_what_is_gone() -> None:
    store = Store()
    store.put(labelled("a", 1, "red"))
    store.drop(A)
    store.learn(labelled("a", 2, "blue"))
    assert A not in store


def test_what_was_just_made_is_known_before_the_watch_tells_of_it() -> None:
    store = Store()
    store.learn(labelled("a", 2, "red"))
    assert A in store
    change = store.put(labelled("a", 2, "red"))
    assert change is not None
    assert change.old is None


def test_an_answer_from_before_the_list_that_lacks_it_is_of_something_gone() -> None:
    store = Store()
    store.listed("10")
    store.learn(labelled("a", 9, "red"))
    assert A not in store


def test_the_controller_of_an_object_is_the_one_that_says_so() -> None:
    owned = thing("a")
    owner = {"apiVersion": "test.example/v2", "kind": "Thing", "name": "x", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner | {"controller": False, "name": "y"}, owner]
    assert controller_of(owned, THING) == Key("team", "x")


def deep(name: str) -> bytes:
    """A thing that no JSON decoder of Python reads."""
    template = b'{"a":' * 5000 + b"1" + b"}" * 5000
    metadata = f'{{"namespace": "team", "name": "{name}"}}'.encode()
    roles = b'{"worker": {"size": 2, "template": ' + template + b"}}"
    return b'{"metadata": ' + metadata + b', "spec": {"roles": ' + roles + b"}}"


def answer(body: bytes) -> TransportAnswer:
    return TransportAnswer(code=200, body=body, headers={})


def test_an_object_that_is_nested_too_deeply_loses_only_that_field() -> None:
    watched = Watched()
    shallow = json.dumps(thing("b", spec={"size": 1})).encode()
    items = b"[" + shallow + b"," + deep("a") + b"]"
    listed = b'{"metadata": {"resourceVersion": "2"}, "items": ' + items + b"}"
    changed = b'{"type": "ADDED", "object": ' + deep("c") + b"}\n" + event("ADDED", thing("d"))
    watched.shelf.faults.extend([answer(listed), answer(changed)])
    watched.reflector.step()
    assert watched.reflector.synced.is_set()
    read = {obj["metadata"]["name"]: obj.get("spec") for obj in watched.store}
    worker = {"size": 2, "template": "(nested more than 100 levels deep)"}
    cut = {"roles": {"worker": worker}}
    assert read == {"a": cut, "b": {"size": 1}, "c": cut, "d": None}
