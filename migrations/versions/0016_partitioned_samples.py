"""On PostgreSQL, the two large tables of samples are divided into partitions by time.

Expand: the version before writes, reads and deletes rows by the same names. The stored rows are not
copied: their table becomes the first partition, and one scan proves that its rows belong there.

Revision ID: 0016
Revises: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KIND = "expand"

TABLES = ("throughput_rows", "host_rows")
#: Slots of 5 minutes in three hours. The first partition ends at a multiple, one to four hours
#: from now, so that the service has time to make the next one.
PERIOD = 36
NEXT = f"((extract(epoch FROM clock_timestamp())::bigint / 300 + 12) / {PERIOD} + 1) * {PERIOD}"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    # Every writer locks its sources first, so no writer holds one table and waits for the other.
    op.execute("LOCK TABLE sources IN EXCLUSIVE MODE")
    end = op.get_bind().exec_driver_sql(f"SELECT {NEXT}").scalar_one()
    for table in TABLES:
        before, rest = f"{table}_before", f"{table}_rest"
        _rename(table, before)
        op.execute(f"CREATE TABLE {table} (LIKE {before}) PARTITION BY RANGE (slot)")
        op.execute(f"CREATE TABLE {rest} PARTITION OF {table} DEFAULT")
        # A clock that was wrong for a while may have stored rows of the future.
        op.execute(
            f"WITH early AS (DELETE FROM {before} WHERE slot >= {end} RETURNING *) "
            f"INSERT INTO {rest} SELECT * FROM early"
        )
        op.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({end})"
        )
        # The indexes of the first partition become parts of these.
        op.create_index(f"ix_{table}_context_slot", table, ["context", "slot"])
        op.create_index(f"ix_{table}_slot", table, ["slot"], postgresql_using="brin")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    for table in TABLES:
        whole = f"{table}_whole"
        op.execute(f"CREATE TABLE {whole} (LIKE {table})")
        op.execute(f"INSERT INTO {whole} SELECT * FROM {table}")
        op.drop_table(table)
        op.execute(f"ALTER TABLE {whole} RENAME TO {table}")
        op.create_index(f"ix_{table}_context_slot", table, ["context", "slot"])
        op.create_index(f"ix_{table}_slot", table, ["slot"], postgresql_using="brin")


def _rename(table: str, before: str) -> None:
    op.execute(f"ALTER TABLE {table} RENAME TO {before}")
    for of in ("context_slot", "slot"):
        op.execute(f"ALTER INDEX ix_{table}_{of} RENAME TO ix_{before}_{of}")
