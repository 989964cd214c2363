"""Run by Alembic; ``brain.db.schema`` hands over the connection and owns the transaction."""

from alembic import context

from brain.db.partitions import PARTITIONED
from brain.db.tables import metadata

connection = context.config.attributes["connection"]


def _is_here(compared, name, type_, reflected, _) -> bool:  # type: ignore[no-untyped-def]
    if type_ == "table" and reflected:
        # The partitions come and go with the hours.
        return not name.startswith(tuple(f"{table.name}_" for table in PARTITIONED))
    only = compared.info.get("only", "")
    return not only or only == connection.dialect.name


context.configure(
    connection=connection,
    target_metadata=metadata,
    # SQLite cannot alter a constraint in place.
    render_as_batch=True,
    include_object=_is_here,
)
context.run_migrations()
