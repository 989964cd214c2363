"""The stores in SQL databases: SQLite and PostgreSQL through SQLAlchemy Core.

Rows never leave this package, and only the end of a transaction commits.
"""

from brain.db.schema import MigrationResult, missing, prepare
from brain.db.stores import SqlStores

__all__ = ["MigrationResult", "SqlStores", "missing", "prepare"]
