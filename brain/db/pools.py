"""Pools in the database: their policies, and the results of their latest rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from brain.db.columns import row, upsert, value
from brain.db.tables import UNFINISHED, jobs, plans, policies, replicas, rounds, sources, worlds
from brain.errors import VersionMismatch
from brain.ports import Mark
from brain.types.job import JobId
from brain.types.resources import PoolName
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.world import ReplicaState


class SqlPools:
    """``PoolStore``, one row per policy and one per latest round."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def marks(self, pool: PoolName) -> Mapping[JobId, Mark]:
        found = self._connection.execute(_MARKS, {"pool": pool})
        return {
            job: Mark(state=state, heard=str(heard or 0), life=".".join(str(n or 0) for n in life))
            for job, state, heard, *life in found
        }

    def policy(self, pool: PoolName) -> StoredPolicy | None:
        return next(iter(self._read(sa.select(policies).where(policies.c.pool == pool))), None)

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        known = self.policy(policy.pool)
        version = known.version if known else 0
        if policy.version != version:
            raise VersionMismatch(
                f"the policy of pool {policy.pool} is at version {version}, not {policy.version}; "
                "read the policy again"
            )
        stored = replace(policy, version=version + 1)
        upsert(self._connection, policies, [row(stored)])
        return stored

    def remove_policy(self, pool: PoolName) -> bool:
        same = policies.c.pool == pool
        return self._connection.execute(sa.delete(policies).where(same)).rowcount > 0

    def policies(self) -> Sequence[StoredPolicy]:
        return self._read(sa.select(policies).order_by(policies.c.pool))

    def round(self, pool: PoolName) -> PoolRound | None:
        mine = sa.select(rounds.c.round).where(rounds.c.pool == pool)
        return self._connection.execute(mine).scalar_one_or_none()

    def put_round(self, round: PoolRound) -> None:
        upsert(self._connection, rounds, [{"pool": round.pool, "round": round}])

    def _read(self, statement: sa.Select[tuple[object, ...]]) -> list[StoredPolicy]:
        return [
            value(StoredPolicy, each) for each in self._connection.execute(statement).mappings()
        ]


def _of_job(table: sa.Table, *columns: sa.ColumnElement[int]) -> sa.Subquery:
    """Return aggregates of the rows of each unfinished job of a pool."""
    mine = sa.select(jobs.c.id).where(jobs.c.pool == sa.bindparam("pool"), UNFINISHED)
    # The query passes once over the rows of each job, which are found by the first column of the
    # key.
    return (
        sa.select(table.c.job, *columns)
        .where(table.c.job.in_(mine))
        .group_by(table.c.job)
        .subquery()
    )


def _marks() -> sa.Select[Any]:
    planned = _of_job(plans, sa.func.count().label("a"), sa.func.sum(plans.c.version).label("b"))
    formed = _of_job(
        worlds,
        sa.func.count().label("a"),
        sa.func.count(worlds.c.stepping_at).label("b"),
        sa.func.count(worlds.c.ended_at).label("c"),
    )
    gone = sa.case((replicas.c.state == ReplicaState.EXITED, 1), else_=0)
    placed = _of_job(replicas, sa.func.count().label("a"), sa.func.sum(gone).label("b"))
    heard = _of_job(sources, sa.func.sum(sources.c.stored).label("a"))
    joined: sa.FromClause = jobs
    for part in (planned, formed, placed, heard):
        joined = joined.outerjoin(part, part.c.job == jobs.c.id)
    life = (jobs.c.version, *planned.c[1:], *formed.c[1:], *placed.c[1:])
    return (
        sa.select(jobs.c.id, jobs.c.state, heard.c.a, *life)
        .select_from(joined)
        .where(jobs.c.pool == sa.bindparam("pool"), UNFINISHED)
        .order_by(jobs.c.created_at, jobs.c.id)
    )


_MARKS = _marks()
