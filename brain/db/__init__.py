"""The stores on SQL: SQLite and PostgreSQL through SQLAlchemy Core. Rows never leave this package."""
