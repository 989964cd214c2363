"""Two Brains that read a value, and then write what follows from it, lose no change."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from brain.db import SqlStores
from brain.ports import StoredFit, Transaction
from brain.types.plan import PlanState
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import AuditEntry, Role, Token
from brain.types.resources import PoolName
from brain.types.sharing import PoolShares, StoredPolicy
from tests.builders import JOB, NOW, job, node, plan, replica, world

#: Reads a number, yields it, and stores a number that is one larger.
Path = Callable[[Transaction], Iterator[int]]
POOL = PoolName("local")
_SECONDS = 30


def _job(t: Transaction) -> Iterator[int]:
    known = t.jobs.get(JOB)
    yield known.failures
    t.jobs.put(replace(known, failures=known.failures + 1))


def _plan(t: Transaction) -> Iterator[int]:
    known = t.plans.get(JOB, 1)
    yield known.version
    t.plans.put(known)


def _generation(t: Transaction) -> Iterator[int]:
    known = t.plans.of(JOB)[0].generation
    yield known - 1
    t.plans.put(replace(t.plans.of(JOB)[0], state=PlanState.REJECTED))
    t.plans.add(plan(known + 1))


def _fit(t: Transaction) -> Iterator[int]:
    known = t.fits.get(JOB, "decision")
    count = int(known.parameters) if known else 0
    yield count
    t.fits.put(StoredFit(job=JOB, kind="decision", parameters=str(count + 1), fitted_at=NOW))


def _world(t: Transaction) -> Iterator[int]:
    count = len(t.worlds.of(JOB))
    yield count
    t.worlds.put(world(count + 1))


def _replicas(t: Transaction) -> Iterator[int]:
    count = len(t.worlds.replicas(JOB))
    yield count
    t.worlds.put_replicas(JOB, [replica(count)])


def _node(t: Transaction) -> Iterator[int]:
    count = len(t.nodes.of(POOL))
    yield count
    t.nodes.put(node(f"node-{count}"))


def _freeze(t: Transaction) -> Iterator[int]:
    count = len(t.freezes.all())
    yield count
    t.freezes.put(Freeze(scope=FreezeScope.JOB, target=str(count), by="ada", why="", at=NOW))


def _policy(t: Transaction) -> Iterator[int]:
    known = t.pools.policy(POOL)
    version = known.version if known else 0
    yield version
    t.pools.put_policy(
        StoredPolicy(pool=POOL, policy=PoolShares(), by="ada", updated_at=NOW, version=version)
    )


def _token(t: Transaction) -> Iterator[int]:
    count = len(t.access.tokens())
    yield count
    made = Token(id=f"t{count}", name="ci", role=Role.VIEWER, sha256=f"h{count}", created_at=NOW)
    t.access.add_token(made)


def _answer(t: Transaction) -> Iterator[int]:
    known = t.access.answer("key", "ada", "POST /jobs")
    yield 0 if known is None else 1
    if known is None:
        given = {"body_sha256": "", "status": 201, "body": "{}", "at": NOW}
        t.access.remember("key", "ada", "POST /jobs", **given)


def _audit(t: Transaction) -> Iterator[int]:
    count = len(t.audit.page(after=None, size=9))
    yield count
    t.audit.add(AuditEntry(at=NOW, actor="ada", action="a", target="t"))


PATHS: dict[str, Path] = {
    "cancel, suspend, resume and admission of a job": _job,
    "approval of a plan": _plan,
    "request for a size": _generation,
    "choice of a batch or an amount": _fit,
    "report of a world": _world,
    "report of replicas": _replicas,
    "registration of a node": _node,
    "freeze": _freeze,
    "policy of a pool": _policy,
    "creation and revocation of a token": _token,
    "answer to an idempotency key": _answer,
    "audit": _audit,
}


@pytest.mark.parametrize("path", PATHS)
def test_the_second_brain_reads_the_first_ones_change(path: str, database_url: str) -> None:
    act, begun = PATHS[path], threading.Event()

    def beside() -> int:
        begun.set()
        with other.transaction() as t:
            found, *_ = act(t)
        return found

    with (
        closing(SqlStores(database_url)) as one,
        closing(SqlStores(database_url)) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        with one.transaction() as t:
            t.jobs.add(job())
            t.plans.add(plan(1))
        with one.transaction() as t:
            steps = act(t)
            before = next(steps)
            waiting = threads.submit(beside)
            assert begun.wait(_SECONDS)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            assert list(steps) == []

        assert waiting.result(timeout=_SECONDS) == before + 1
