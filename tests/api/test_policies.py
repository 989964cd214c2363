"""Pools: what a round came to, and how people divide them."""

import pytest

from brain import calls
from brain.client import Call
from brain.errors import BadInput, NotAllowed, UnknownField, UnknownPool, VersionMismatch
from brain.types.record import Role
from brain.types.resources import PoolName
from brain.types.sharing import JobShare, PoolRound, ProjectShare
from tests.api.app import Api
from tests.builders import JOB, NOW, node

LOCAL = PoolName("local")


def put(api: Api, document: dict[str, object], **more: object) -> object:
    with api.client(Role.ADMIN) as admin:
        return admin.send(calls.put_policy("local", document, **more))  # type: ignore[arg-type]


def test_a_policy_is_written_read_and_audited(api: Api) -> None:
    put(api, {"projects": {"vision": {"guaranteed": 1, "limit": 2, "priority": 1}}})

    with api.client(Role.VIEWER) as viewer:
        (found,) = viewer.send(calls.policies()).items
    assert found.policy.projects == {"vision": ProjectShare(guaranteed=1, limit=2, priority=1)}
    assert found.version == 1
    with api.stores.transaction() as tx:
        assert [entry.action for entry in tx.audit.page(after=None, size=9)] == ["policy.put"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"projects": {"vision": {"guaranted": 1}}}, "did you mean projects.vision.guaranteed"),
        ({"projects": {"": {}}}, "projects '' is not a valid name; give 1 to 63 letters"),
        ({"projects": {"a\0": {}}}, "has a NUL character; rename it"),
        ({"projects": {"vision": {"limit": -1}}}, "projects.vision.limit -1 must be 0 or more"),
        (
            {"projects": {"vision": {"guaranteed": 2, "limit": 1}}},
            "projects.vision.limit 1 is less than its guaranteed 2; raise limit",
        ),
        (
            {"projects": {"vision": {"priority": 99}}},
            "projects.vision.priority 99 must be from -8 to 8",
        ),
        (
            {"projects": {"vision": {"guaranteed": 2}, "speech": {"guaranteed": 1}}},
            "add up to 3, but the pool has 2 cores; lower them, or register more nodes",
        ),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_with_the_field(
    api: Api, document: dict[str, object], said: str
) -> None:
    api.add_node(cpus=2)
    with pytest.raises((BadInput, UnknownField), match=said):
        put(api, document)


def test_a_dry_run_keeps_nothing(api: Api) -> None:
    put(api, {"projects": {}}, dry_run=True)

    with api.stores.transaction() as tx:
        assert tx.pools.policies() == []


def test_only_an_administrator_divides_a_pool(api: Api) -> None:
    refused = pytest.raises(NotAllowed, match="needs the role admin")
    with api.client(Role.OPERATOR) as operator, refused:
        operator.send(calls.put_policy("local", {"projects": {}}))


def test_a_policy_that_changed_meanwhile_is_not_overwritten(api: Api) -> None:
    put(api, {"projects": {}})
    call = calls.put_policy("local", {"projects": {}})

    with (
        api.client(Role.ADMIN) as admin,
        pytest.raises(VersionMismatch, match="the request names version 7"),
    ):
        admin.send(replaced(call))


def replaced(call: "Call[object]") -> "Call[object]":
    return type(call)(
        method=call.method,
        path=call.path,
        reads=call.reads,
        body=call.body,
        headers={"If-Match": '"7"'},
    )


def test_a_pool_tells_its_latest_round(api: Api) -> None:
    share = JobShare(
        job=JOB,
        name="digits",
        project="default",
        outcome="keeps",
        accelerator="cpu",
        before=1,
        replicas=1,
        reason="it keeps one",
    )
    with api.stores.transaction() as tx:
        tx.nodes.put(node())
        tx.pools.put_round(
            PoolRound(pool=LOCAL, decided_at=NOW, value=1.0, bound=1.25, shares=(share,))
        )

    with api.client(Role.VIEWER) as viewer:
        found = viewer.send(calls.pool("local"))

    assert found.round is not None
    assert found.round.shares == (share,)
    assert found.gap == pytest.approx(0.2)
    assert found.capacity.cpu_millis == 2000


def test_a_pool_that_is_none_is_not_found(api: Api) -> None:
    with (
        api.client(Role.VIEWER) as viewer,
        pytest.raises(UnknownPool, match=("pool moon has no nodes")),
    ):
        viewer.send(calls.pool("moon"))


def test_a_pool_that_no_store_could_name_is_refused(api: Api) -> None:
    answer = api.http(api.token(Role.ADMIN)).put("/api/v1/policies/%00", json={})
    assert (answer.status_code, answer.json()["field"]) == (422, "pool")
