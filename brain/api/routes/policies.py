"""The division of pools: the result of the latest round, and the policies that people write."""

from collections.abc import Sequence

from fastapi import Response

from brain import errors, lifecycle, wire
from brain.api import routers, views
from brain.api.acting import Act
from brain.api.deps import Here, PageSize, Who, answer, json_body
from brain.api.pages import LARGEST, named_page
from brain.api.problems import problems
from brain.ports import Transaction
from brain.types.job import check_name
from brain.types.record import AuditEntry
from brain.types.resources import Node, PoolName
from brain.types.sharing import PoolShares, StoredPolicy
from brain.views import Page, PoolView

router = routers.router("pools")


@router.get("/pools/{pool}", response_model=PoolView, responses=problems(errors.UnknownPool))
def pool(pool: PoolName, here: Here, who: Who) -> Response:
    """Return a pool: its nodes, its policy, and the result of the latest round of the jobs that
    share it.
    """
    with here.stores.transaction(read_only=True) as tx:
        return answer(views.pool(tx, pool, here.clock()))


@router.get("/policies", response_model=Page[StoredPolicy], responses=problems())
def policies(here: Here, who: Who, page_size: PageSize = LARGEST, page_token: str = "") -> Response:
    """Return the policies of all pools, by pool."""
    with here.stores.transaction(read_only=True) as tx:
        found = tx.pools.policies()
    return answer(
        named_page(found, lambda policy: policy.pool, page_token=page_token, size=page_size)
    )


@router.get("/policies/{pool}", response_model=StoredPolicy, responses=problems(errors.UnknownPool))
def policy(pool: PoolName, here: Here, who: Who) -> Response:
    """Return the policy of a pool; the ETag is its version, for ``If-Match``."""
    with here.stores.transaction(read_only=True) as tx:
        found = _found(tx, pool)
    return answer(found, etag=str(found.version))


@router.put(
    "/policies/{pool}",
    response_model=StoredPolicy,
    responses=problems(errors.BadInput, errors.UnknownField, errors.VersionMismatch),
)
def put_policy(pool: PoolName, here: Here, who: Who, act: Act) -> Response:
    """Replace the policy that divides a pool among projects."""
    written = wire.document(json_body(act.body), PoolShares)
    written.check()
    check_name("pool", pool)

    def stored(tx: Transaction) -> StoredPolicy:
        nodes = lifecycle.expected(tx.nodes.of(pool), here.clock())
        if nodes:
            written.check_capacity(*_capacity(nodes))
        known = tx.pools.policy(pool)
        act.check_version(known.version if known else 0)
        now = here.clock()
        made = StoredPolicy(
            pool=pool,
            policy=written,
            by=who.name,
            updated_at=now,
            version=known.version if known else 0,
        )
        _note(tx, made, "policy.put", known, wire.encode(written).decode())
        return tx.pools.put_policy(made)

    return act(stored, etag=_version)


@router.delete(
    "/policies/{pool}",
    status_code=204,
    responses=problems(errors.UnknownPool, errors.VersionMismatch),
)
def remove_policy(pool: PoolName, here: Here, who: Who, act: Act) -> Response:
    """Remove the policy of a pool; every project may then use all of it."""

    def removed(tx: Transaction) -> None:
        known = _found(tx, pool)
        act.check_version(known.version)
        tx.pools.remove_policy(pool)
        made = StoredPolicy(
            pool=pool, policy=PoolShares(), by=who.name, updated_at=here.clock(), version=0
        )
        _note(tx, made, "policy.remove", known, "")

    return act(removed, status=204)


def _found(tx: Transaction, pool: PoolName) -> StoredPolicy:
    found = tx.pools.policy(pool)
    if found is None:
        raise errors.UnknownPool(
            f"pool {pool} has no policy; write one with PUT, or let its projects share the pool "
            "without rules"
        )
    return found


def _capacity(nodes: Sequence[Node]) -> tuple[int, str]:
    gpus = sum(node.capacity.gpus for node in nodes)
    return (gpus, "GPUs") if gpus else (sum(n.capacity.cpu_millis for n in nodes) // 1000, "cores")


def _note(
    tx: Transaction, made: StoredPolicy, action: str, known: StoredPolicy | None, after: str
) -> None:
    before = wire.encode(known.policy).decode() if known else ""
    target = f"policy/{made.pool}"
    tx.audit.add(
        AuditEntry(
            at=made.updated_at,
            actor=made.by,
            action=action,
            target=target,
            before=before,
            after=after,
        )
    )


def _version(stored: object) -> str:
    assert isinstance(stored, StoredPolicy)
    return str(stored.version)
