"""The tables. Columns are named like their fields; a comment on an index names the queries that use
it.
"""

from collections.abc import Mapping

import sqlalchemy as sa

from brain.db.columns import Instant, Name, RisingId, Value, Word
from brain.types.allocation import Allocation
from brain.types.diagnosis import Diagnosis
from brain.types.explanation import Explanation
from brain.types.job import FINISHED, Intent, JobDocument, JobId, JobState, ObjectCondition
from brain.types.plan import ACTIVE, REACHED, Approval, Outcome, PlanKind, PlanState
from brain.types.pool import FreezeScope
from brain.types.recommendation import Prediction, Recommendation
from brain.types.record import Role
from brain.types.resources import Resources
from brain.types.sharing import PoolRound, PoolShares
from brain.types.world import Cause, Member, ReplicaExit, ReplicaState

metadata = sa.MetaData(
    # Named from the first migration on: SQLite can only drop a constraint that has a name.
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _states(states: frozenset[JobState] | frozenset[PlanState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


UNFINISHED = sa.text(f"state NOT IN ({_states(FINISHED)})")
ACTIVE_PLAN = sa.text(f"state IN ({_states(ACTIVE)})")
REACHED_PLAN = sa.text(f"state IN ({_states(REACHED)})")
#: Replicas that exist, or that left a sick or slow node.
PRESENT = sa.text(f"(state <> '{ReplicaState.EXITED}' OR unfit <> '')")

_SAID = Value[object](tuple[ObjectCondition, ...])

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Name, primary_key=True),
    # Fields of the document that queries search.
    sa.Column("project", Name, nullable=False),
    sa.Column("name", Name, nullable=False),
    sa.Column("document", Value[JobDocument](JobDocument), nullable=False),
    sa.Column("pool", Name, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("confined", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("state", Word(JobState), nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("intent", Word(Intent), nullable=False),
    sa.Column("advise_only", sa.String),
    sa.Column("amounts", Value[Resources](Resources)),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("conditions", _SAID, nullable=False, server_default="[]"),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.Column("finished_at", Instant),
    sa.Column("version", sa.Integer, nullable=False),
    # Only one unfinished job of a project has a name.
    sa.Index(
        "uq_jobs_unfinished_name",
        "project",
        "name",
        unique=True,
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    ),
    # The newest job of a name, finished or not.
    sa.Index("ix_jobs_project_name_created_at", "project", "name", "created_at"),
    # The unfinished jobs of a pool, and the pools that have any.
    sa.Index(
        "ix_jobs_unfinished",
        "pool",
        "created_at",
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    ),
)

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("job", Name, primary_key=True),
    # The fencing token: the primary key lets one of two racing Brains win.
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", Word(PlanKind), nullable=False),
    sa.Column("state", Word(PlanState), nullable=False),
    sa.Column("current", Value[Allocation](Allocation), nullable=False),
    sa.Column("target", Value[Allocation](Allocation), nullable=False),
    sa.Column("measured", Value[Prediction](Prediction)),
    sa.Column("promised", Value[Prediction](Prediction)),
    sa.Column("restart_seconds", sa.Double),
    sa.Column("payback_seconds", sa.Double),
    sa.Column("explanation", Value[Explanation](Explanation), nullable=False),
    sa.Column("proposed_by", sa.String, nullable=False),
    sa.Column("approval", Value[Approval](Approval)),
    sa.Column("outcome", Value[Outcome](Outcome), nullable=False),
    sa.Column("after", Value[object](tuple[tuple[JobId, int], ...]), nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    # At most one active plan per job; also finds it.
    sa.Index(
        "uq_plans_active",
        "job",
        unique=True,
        sqlite_where=ACTIVE_PLAN,
        postgresql_where=ACTIVE_PLAN,
    ),
    # For the inbox, newest first.
    sa.Index("ix_plans_created_at", "created_at", "job", "generation"),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("recommendation", Value[Recommendation](Recommendation), nullable=False),
)


def _real(*names: str) -> tuple[sa.Column[object], ...]:
    return tuple(sa.Column(name, sa.Double, nullable=False) for name in names)


#: Counts and clock of each source: both stay after the samples retired.
sources = sa.Table(
    "sources",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("source", Name, primary_key=True),
    sa.Column("highest", sa.BigInteger, nullable=False),
    sa.Column("stored", sa.BigInteger, nullable=False),
    sa.Column("dropped", sa.BigInteger, nullable=False),
    sa.Column("heard_at", Instant, nullable=False),
    sa.Column("offset_seconds", sa.Double, nullable=False),
    # Of the source's newest sample.
    sa.Column("measured_at", Instant, nullable=False),
    sa.Column("corrected_at", Instant, nullable=False),
)

#: Last step of rank 0 in each world whose samples retired, in part or all.
retired_steps = sa.Table(
    "retired_steps",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, nullable=False),
)

minute_means = sa.Table(
    "minute_means",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("metric", Name, primary_key=True),
    sa.Column("minute", Instant, primary_key=True),
    *_real("mean", "low", "high", "weight"),
    # Rows that are old enough to delete.
    sa.Index("ix_minute_means_minute", "minute", postgresql_using="brin"),
)

hour_means = sa.Table(
    "hour_means",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("metric", Name, primary_key=True),
    sa.Column("hour", Instant, primary_key=True),
    *_real("mean", "low", "high", "weight"),
    sa.Index("ix_hour_means_hour", "hour", postgresql_using="brin"),
)

fits = sa.Table(
    "fits",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("kind", Name, primary_key=True),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("fitted_at", Instant, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("pool", Name, primary_key=True),
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
)

worlds = sa.Table(
    "worlds",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("cause", Word(Cause), nullable=False),
    sa.Column("members", Value[object](tuple[Member, ...]), nullable=False),
    sa.Column("formed_at", Instant, nullable=False),
    sa.Column("stepping_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("downtime_seconds", sa.Double),
    sa.Column("steps_redone", sa.BigInteger),
    sa.Column("elastic", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("detail", sa.String, nullable=False),
    sa.Column("diagnosis", Value[Diagnosis](Diagnosis)),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("role", Name, primary_key=True),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("node", Name, nullable=False),
    sa.Column("state", Word(ReplicaState), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("ended_at", Instant),
    sa.Column("exit", Word(ReplicaExit)),
    sa.Column("exit_code", sa.Integer),
    sa.Column("detail", sa.String, nullable=False),
    sa.Column("unfit", sa.String, nullable=False, server_default=""),
    sa.Column("resources", Value[Resources](Resources)),
    sa.Column("unenforced", sa.String, nullable=False, server_default=""),
    # The present replicas of a page of nodes.
    sa.Index("ix_replicas_present", "node", sqlite_where=PRESENT, postgresql_where=PRESENT),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", Name, primary_key=True),
    sa.Column("pool", Name, nullable=False),
    sa.Column("capacity", Value[Resources](Resources), nullable=False),
    sa.Column("accelerator", sa.String, nullable=False),
    sa.Column("slots", sa.Integer),
    sa.Column("seen_at", Instant, nullable=False),
    sa.Column("schedulable", sa.Boolean, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", RisingId, primary_key=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("job", Name),
    sa.Column("subject", sa.BigInteger),
    sa.Column("message", sa.String, nullable=False),
    sa.Column("data", Value[object](Mapping[str, str])),
    # Events of one job.
    sa.Index("ix_events_job_id", "job", "id"),
    sqlite_autoincrement=True,
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", RisingId, primary_key=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("after", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Name, primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("role", Word(Role), nullable=False),
    sa.Column("job", Name),
    sa.Column("sha256", Name, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant),
    sa.Column("revoked_at", Instant),
    sa.Column("last_used_at", Instant),
    sa.UniqueConstraint("sha256"),
)

codes = sa.Table(
    "codes",
    metadata,
    sa.Column("sha256", Name, primary_key=True),
    sa.Column("expires_at", Instant, nullable=False),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("key", Name, primary_key=True),
    sa.Column("principal", Name, primary_key=True),
    sa.Column("route", Name, primary_key=True),
    sa.Column("body_sha256", sa.String, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("at", Instant, nullable=False),
    # Rows that are old enough to delete.
    sa.Index("ix_answers_at", "at"),
)

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("job", Name, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
)

freezes = sa.Table(
    "freezes",
    metadata,
    sa.Column("scope", Word(FreezeScope), primary_key=True),
    sa.Column("target", Name, primary_key=True),
    sa.Column("by", sa.String, nullable=False),
    sa.Column("why", sa.String, nullable=False),
    sa.Column("at", Instant, nullable=False),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("pool", Name, primary_key=True),
    sa.Column("policy", Value[PoolShares](PoolShares), nullable=False),
    sa.Column("by", sa.String, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("pool", Name, primary_key=True),
    sa.Column("round", Value[PoolRound](PoolRound), nullable=False),
)
