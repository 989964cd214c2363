"""Operators at work in threads: everything is looked at, written once, and by the leader alone."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from scaler.kubernetes.runtime import (
    ElectionTerms,
    Key,
    Manager,
    Result,
    Store,
    StoreChange,
    write_status,
)
from scaler.kubernetes.runtime.cluster import LEASE, POD, Cluster
from scaler.kubernetes.runtime.cluster.errors import failure
from tests.kubernetes.eventually import eventually
from tests.kubernetes.shelf import THING, Shelf, refused, thing

#: Real clocks run here: a leader that stands still for a while stays one.
TERMS = ElectionTerms(namespace="brain", lease_seconds=60.0, renew_seconds=40.0, retry_seconds=0.1)


class Operator:
    """Writes into the status of every thing how large it is."""

    def __init__(self, shelf: Shelf, terms: ElectionTerms | None = None) -> None:
        self.manager = Manager(Cluster(shelf), terms=terms, random=Random(1))
        self.store: Store = self.manager.store(THING)
        self.looked = 0
        self.manager.control("things", THING, self.reconcile, owns=[POD])

    def reconcile(self, key: Key) -> Result:
        self.looked += 1
        obj = self.store.get(key)
        if obj is not None:
            wanted = {"size": obj.get("spec", {}).get("size", 1)}
            if answer := write_status(self.manager.cluster, THING, obj, wanted):
                self.store.learn(answer)
        return Result()


@contextmanager
def running(shelf: Shelf, terms: ElectionTerms | None = None) -> Iterator[Operator]:
    operator = Operator(shelf, terms)
    operator.manager.start()
    try:
        yield operator
    finally:
        operator.manager.stop()


def handed_back() -> Shelf:
    """A shelf with a lease that is nobody's, so that the first one need not wait for its end."""
    shelf = Shelf(live=True)
    metadata = {"namespace": TERMS.namespace, "name": TERMS.name}
    shelf.put({"metadata": metadata, "spec": {"holderIdentity": ""}}, LEASE)
    return shelf


def written(shelf: Shelf, size: int = 1) -> bool:
    things = [obj for path, obj in list(shelf.objects.items()) if "/things/" in path]
    return all(obj.get("status") == {"size": size} for obj in things)


def test_a_listener_that_fails_keeps_no_change_from_the_others() -> None:
    shelf, heard = Shelf(live=True), list[StoreChange]()
    shelf.put(thing("a"))
    manager = Manager(Cluster(shelf), random=Random(1))

    def fail(change: StoreChange) -> None:
        raise KeyError(change.key)

    manager.listen(THING, fail)
    manager.listen(THING, heard.append)
    manager.start()
    try:
        eventually(lambda: len(heard) == 1)
    finally:
        manager.stop()


def test_every_object_gets_its_status_by_one_write() -> None:
    shelf = Shelf(live=True)
    for number in range(20):
        shelf.put(thing(f"t-{number}"))
    with running(shelf):
        eventually(lambda: written(shelf))
    assert len(shelf.asked("PATCH")) == 20


def test_a_change_is_reconciled_and_so_is_one_of_what_it_controls() -> None:
    shelf = Shelf(live=True)
    shelf.put(thing("a"))
    with running(shelf) as operator:
        eventually(lambda: written(shelf))
        stored = next(obj for path, obj in shelf.objects.items() if "/things/" in path)
        shelf.put({**stored, "spec": {"size": 4}})
        eventually(lambda: written(shelf, 4))
        eventually(lambda: operator.manager.metrics.depth.labels("things")._value.get() == 0)
        looked = operator.looked
        owner = {"apiVersion": "test.example/v1", "kind": "Thing", "name": "a", "controller": True}
        pod = {"metadata": {"namespace": "team", "name": "p", "ownerReferences": [owner]}}
        shelf.put(pod, POD)
        eventually(lambda: operator.looked > looked)


def test_who_follows_knows_all_and_writes_nothing_until_it_leads() -> None:
    shelf = handed_back()
    with running(shelf, TERMS) as first:
        eventually(lambda: first.manager.leading)
        with running(shelf, TERMS) as second:
            shelf.put(thing("a"))
            eventually(lambda: len(second.store) == 1 and written(shelf))
            assert (second.looked, second.manager.leading) == (0, False)
            first.manager.stop()
            shelf.put(thing("b"))
            eventually(lambda: second.manager.leading and written(shelf))
            assert not first.manager.leading


def test_everything_ends_when_it_is_told_to() -> None:
    before = threading.active_count()
    with running(handed_back(), TERMS) as operator:
        eventually(operator.manager.synced)
    eventually(lambda: threading.active_count() <= before)


def test_why_a_store_may_be_out_of_date_is_said() -> None:
    shelf, no, mended = Shelf(live=True), refused(403, "Forbidden"), threading.Event()

    def gate(request: object) -> None:
        if not mended.is_set():
            raise failure(no.code, no.body, no.headers, str(request))

    shelf.gate = gate
    with running(shelf) as operator:
        eventually(lambda: len(operator.manager.trouble) > 0)
        assert "no, Forbidden (403)" in operator.manager.trouble[0]
        mended.set()
        eventually(operator.manager.synced)


@pytest.mark.parametrize(
    "module", ["brain", "brain.service", "scaler.cli", "scaler.kubernetes.runtime"]
)
def test_the_official_client_is_loaded_where_it_is_used_and_nowhere_else(module: str) -> None:
    program = f"import sys, {module}; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
