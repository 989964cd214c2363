"""Run by Alembic; ``brain.db.schema`` hands over the connection and owns the transaction."""

from alembic import context

from brain.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter a constraint in place.
    render_as_batch=True,
)
context.run_migrations()
