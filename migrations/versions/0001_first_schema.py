"""The first schema: every table.

Expand: nothing is there yet that could read it.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: ``expand`` may run while the version before serves; ``contract`` only after it is gone.
KIND = "expand"

# The types of brain.db.columns as they were: a migration must not change when they do.
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
RISING_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _jobs_and_plans()
    _worker_samples()
    _other_samples()
    _what_was_observed()
    _what_is_written_down()
    _access()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)


def _jobs_and_plans() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", NAME, nullable=False),
        sa.Column("project", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.Column("pool", NAME, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("intent", sa.String(), nullable=False),
        sa.Column("advise_only", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_project_name_created_at", "jobs", ["project", "name", "created_at"])
    op.create_index(
        "ix_jobs_unfinished",
        "jobs",
        ["pool", "created_at"],
        sqlite_where=sa.text("state NOT IN ('Cancelled', 'Failed', 'Succeeded')"),
        postgresql_where=sa.text("state NOT IN ('Cancelled', 'Failed', 'Succeeded')"),
    )
    op.create_index(
        "uq_jobs_unfinished_name",
        "jobs",
        ["project", "name"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('Cancelled', 'Failed', 'Succeeded')"),
        postgresql_where=sa.text("state NOT IN ('Cancelled', 'Failed', 'Succeeded')"),
    )
    op.create_table(
        "plans",
        sa.Column("job", NAME, nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("current", JSON, nullable=False),
        sa.Column("target", JSON, nullable=False),
        sa.Column("measured", JSON, nullable=True),
        sa.Column("promised", JSON, nullable=True),
        sa.Column("restart_seconds", sa.Double(), nullable=True),
        sa.Column("payback_seconds", sa.Double(), nullable=True),
        sa.Column("explanation", JSON, nullable=False),
        sa.Column("proposed_by", sa.String(), nullable=False),
        sa.Column("approval", JSON, nullable=True),
        sa.Column("outcome", JSON, nullable=False),
        sa.Column("after", JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job", "generation", name="pk_plans"),
    )
    op.create_index("ix_plans_created_at", "plans", ["created_at", "job", "generation"])
    op.create_index(
        "uq_plans_active",
        "plans",
        ["job"],
        unique=True,
        sqlite_where=sa.text("state IN ('Applied', 'Applying', 'Approved', 'Proposed')"),
        postgresql_where=sa.text("state IN ('Applied', 'Applying', 'Approved', 'Proposed')"),
    )
    op.create_table(
        "decisions",
        sa.Column("job", NAME, nullable=False),
        sa.Column("recommendation", JSON, nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_decisions"),
    )
    op.create_table(
        "fits",
        sa.Column("job", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("fitted_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("job", "kind", name="pk_fits"),
    )
    op.create_table(
        "leases",
        sa.Column("pool", NAME, nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_leases"),
    )


def _worker_samples() -> None:
    op.create_table(
        "throughput_samples",
        sa.Column("source", NAME, nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("replica", sa.BigInteger(), nullable=False),
        sa.Column("local_rank", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("processes", sa.BigInteger(), nullable=False),
        sa.Column("accelerator", sa.String(), nullable=False),
        sa.Column("local_batch", sa.BigInteger(), nullable=True),
        sa.Column("accumulation", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        sa.Column("step_seconds_mean", sa.Double(), nullable=False),
        sa.Column("data_wait_seconds", sa.Double(), nullable=False),
        sa.Column("examples_per_second", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("source", "measured_at", name="pk_throughput_samples"),
    )
    op.create_index(
        "ix_throughput_samples_job_corrected_at", "throughput_samples", ["job", "corrected_at"]
    )
    op.create_index(
        "ix_throughput_samples_corrected_at",
        "throughput_samples",
        ["corrected_at"],
        postgresql_using="brin",
    )
    op.create_table(
        "save_samples",
        sa.Column("source", NAME, nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("replica", sa.BigInteger(), nullable=False),
        sa.Column("local_rank", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("save_seconds", sa.Double(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "measured_at", name="pk_save_samples"),
    )
    op.create_index("ix_save_samples_job_corrected_at", "save_samples", ["job", "corrected_at"])
    op.create_index(
        "ix_save_samples_corrected_at", "save_samples", ["corrected_at"], postgresql_using="brin"
    )


def _other_samples() -> None:
    op.create_table(
        "host_samples",
        sa.Column("source", NAME, nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("node", NAME, nullable=False),
        sa.Column("cpu_millis", sa.BigInteger(), nullable=False),
        sa.Column("cpu_capacity_millis", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("memory_capacity_bytes", sa.BigInteger(), nullable=False),
        sa.Column("job_cpu_millis", sa.BigInteger(), nullable=False),
        sa.Column("job_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("network_receive_bytes_per_second", sa.Double(), nullable=False),
        sa.Column("network_send_bytes_per_second", sa.Double(), nullable=False),
        sa.Column("disk_read_bytes_per_second", sa.Double(), nullable=False),
        sa.Column("disk_write_bytes_per_second", sa.Double(), nullable=False),
        sa.Column("gpus", JSON, nullable=False),
        sa.Column("gpu_share", sa.Double(), nullable=True),
        sa.Column("gpu_memory_share", sa.Double(), nullable=True),
        sa.Column("unavailable", JSON, nullable=False),
        sa.PrimaryKeyConstraint("source", "measured_at", name="pk_host_samples"),
    )
    op.create_index("ix_host_samples_job_corrected_at", "host_samples", ["job", "corrected_at"])
    op.create_index(
        "ix_host_samples_corrected_at", "host_samples", ["corrected_at"], postgresql_using="brin"
    )
    op.create_table(
        "loss_samples",
        sa.Column("source", NAME, nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("job", NAME, nullable=False),
        sa.Column("where", sa.String(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "measured_at", name="pk_loss_samples"),
    )
    op.create_index("ix_loss_samples_job_corrected_at", "loss_samples", ["job", "corrected_at"])
    op.create_index(
        "ix_loss_samples_corrected_at", "loss_samples", ["corrected_at"], postgresql_using="brin"
    )
    op.create_table(
        "sources",
        sa.Column("job", NAME, nullable=False),
        sa.Column("source", NAME, nullable=False),
        sa.Column("highest", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", INSTANT, nullable=False),
        sa.Column("offset_seconds", sa.Double(), nullable=False),
        sa.Column("measured_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("job", "source", name="pk_sources"),
    )
    op.create_table(
        "minute_means",
        sa.Column("job", NAME, nullable=False),
        sa.Column("metric", NAME, nullable=False),
        sa.Column("minute", INSTANT, nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", "metric", "minute", name="pk_minute_means"),
    )
    op.create_index("ix_minute_means_minute", "minute_means", ["minute"], postgresql_using="brin")


def _what_was_observed() -> None:
    op.create_table(
        "worlds",
        sa.Column("job", NAME, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("members", JSON, nullable=False),
        sa.Column("formed_at", INSTANT, nullable=False),
        sa.Column("stepping_at", INSTANT, nullable=True),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.Column("downtime_seconds", sa.Double(), nullable=True),
        sa.Column("steps_redone", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("job", "epoch", name="pk_worlds"),
    )
    op.create_table(
        "replicas",
        sa.Column("job", NAME, nullable=False),
        sa.Column("role", NAME, nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node", NAME, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.Column("exit", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("job", "role", "id", name="pk_replicas"),
    )
    op.create_table(
        "nodes",
        sa.Column("name", NAME, nullable=False),
        sa.Column("pool", NAME, nullable=False),
        sa.Column("capacity", JSON, nullable=False),
        sa.Column("accelerator", sa.String(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=True),
        sa.Column("seen_at", INSTANT, nullable=False),
        sa.Column("schedulable", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )


def _what_is_written_down() -> None:
    op.create_table(
        "events",
        sa.Column("id", RISING_ID, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("job", NAME, nullable=True),
        sa.Column("subject", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("data", JSON, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job_id", "events", ["job", "id"])
    op.create_table(
        "audit",
        sa.Column("id", RISING_ID, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "freezes",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("target", NAME, nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("scope", "target", name="pk_freezes"),
    )


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("job", NAME, nullable=True),
        sa.Column("sha256", NAME, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=True),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.Column("last_used_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    )
    op.create_table(
        "codes",
        sa.Column("sha256", NAME, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_codes"),
    )
    op.create_table(
        "answers",
        sa.Column("key", NAME, nullable=False),
        sa.Column("principal", NAME, nullable=False),
        sa.Column("route", NAME, nullable=False),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("key", "principal", "route", name="pk_answers"),
    )
    op.create_index("ix_answers_at", "answers", ["at"])
    op.create_table(
        "secrets",
        sa.Column("job", NAME, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_secrets"),
    )


TABLES = (
    "jobs",
    "plans",
    "decisions",
    "fits",
    "leases",
    "throughput_samples",
    "save_samples",
    "host_samples",
    "loss_samples",
    "sources",
    "minute_means",
    "worlds",
    "replicas",
    "nodes",
    "events",
    "audit",
    "freezes",
    "tokens",
    "codes",
    "answers",
    "secrets",
)
