"""Migrations, forwards and back, on both databases; and what a service start does with them."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from brain.db import MigrationResult, missing, prepare
from brain.db.engine import open_engine
from brain.db.schema import config, migrations_path
from brain.errors import BadInput, SchemaTooNew, Unavailable
from tests.postgresql import Server

_STEP = '''"""A step of a test. {kind}."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"
KIND = "{kind}"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("of_{revision}", sa.String()))


def downgrade() -> None:
    op.drop_column("nodes", "of_{revision}")
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'brain.db'}"
        return
    server: Server = request.getfixturevalue("postgresql")
    with server.database() as name:
        yield server.url(name)


def later(directory: Path, *kinds: str) -> Path:
    """The migrations of a later release, with one more step of each of ``kinds``."""
    made = directory / "migrations"
    shutil.copytree(migrations_path(), made, ignore=shutil.ignore_patterns("__pycache__"))
    before = max(path.stem for path in made.glob("versions/*.py")).partition("_")[0]
    for number, kind in enumerate(kinds, int(before) + 1):
        step = _STEP.format(kind=kind, revision=f"{number:04}", before=f"{number - 1:04}")
        (made / "versions" / f"{number:04}_{kind}.py").write_text(step)
    return made


def newest(steps: int = 0) -> str:
    """The revision of this code, or so many steps after it."""
    made = max(path.stem for path in migrations_path().glob("versions/*.py"))
    return f"{int(made.partition('_')[0]) + steps:04}"


def tables(url: str) -> set[str]:
    """The tables that a database has."""
    engine = open_engine(url)
    with engine.begin() as connection:
        found = set(sa.inspect(connection).get_table_names())
    engine.dispose()
    return found


class TestMigrations:
    def test_lead_to_the_tables_of_the_code(self, database_url: str) -> None:
        # Of our own engine JSON comes as text, which SQLAlchemy's reflection does not expect.
        engine = sa.create_engine(open_engine(database_url).url)
        with engine.begin() as connection:
            command.check(config(connection))
        engine.dispose()

    def test_lead_back_to_nothing(self, bare_url: str) -> None:
        prepare(bare_url)
        engine = open_engine(bare_url)
        with engine.begin() as connection:
            command.downgrade(config(connection), "base")
        engine.dispose()
        assert tables(bare_url) == {"alembic_version"}

    def test_each_says_whether_it_expands_or_contracts(self) -> None:
        for path in migrations_path().glob("versions/*.py"):
            words = path.read_text()
            assert 'KIND = "expand"' in words or 'KIND = "contract"' in words, path.name


class TestPrepare:
    def test_makes_a_new_database(self, bare_url: str) -> None:
        done = prepare(bare_url)
        assert (done.before, done.copy) == (None, None)
        assert "jobs" in tables(bare_url)

    def test_says_nothing_when_nothing_is_to_be_done(self, database_url: str) -> None:
        assert prepare(database_url).message == ""

    def test_refuses_a_schema_that_is_newer_than_the_code(
        self, bare_url: str, tmp_path: Path
    ) -> None:
        prepare(bare_url, migrations=later(tmp_path, "expand"))
        with pytest.raises(SchemaTooNew, match=f"revision {newest(1)}"):
            prepare(bare_url)

    def test_runs_once_when_two_services_start_together(self, bare_url: str) -> None:
        done: list[MigrationResult] = []
        threads = [
            threading.Thread(target=lambda: done.append(prepare(bare_url))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert {each.before for each in done} == {None, done[0].after}

    def test_undoes_all_of_a_migration_that_fails(self, bare_url: str, tmp_path: Path) -> None:
        last = newest(2)
        broken = later(tmp_path, "expand", "expand")
        step = broken / "versions" / f"{last}_expand.py"
        step.write_text(step.read_text().replace('"nodes"', '"no such table"'))
        with pytest.raises(sa.exc.SQLAlchemyError):
            prepare(bare_url, migrations=broken)
        assert "jobs" not in tables(bare_url)

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("mysql://root@localhost/brain", "only sqlite and postgresql"),
            ("/var/lib/brain.db", "is not a URL"),
            ("sqlite://", "names no file"),
        ],
    )
    def test_refuses_what_is_no_supported_database(self, url: str, said: str) -> None:
        with pytest.raises(BadInput, match=said):
            prepare(url)

    def test_refuses_a_directory_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="create its directory"):
            prepare(f"sqlite:///{tmp_path / 'absent' / 'brain.db'}")


class TestMissing:
    def test_is_everything_where_there_is_no_schema(self, bare_url: str, tmp_path: Path) -> None:
        assert missing(bare_url)[-1] == newest()
        assert not (tmp_path / "brain.db").exists()
        assert prepare(bare_url).before is None

    def test_is_what_a_later_release_brings(self, database_url: str, tmp_path: Path) -> None:
        steps = later(tmp_path, "expand", "contract")
        assert missing(database_url) == ()
        assert missing(database_url, migrations=steps) == (newest(1), newest(2))
        assert missing(database_url) == ()

    def test_cannot_be_told_of_a_schema_that_is_newer(self, bare_url: str, tmp_path: Path) -> None:
        prepare(bare_url, migrations=later(tmp_path, "expand"))
        with pytest.raises(SchemaTooNew, match=f"revision {newest(1)}"):
            missing(bare_url)


class TestPrepareOnSqlite:
    def test_copies_the_file_first_and_says_where(self, sqlite_url: str, tmp_path: Path) -> None:
        done = prepare(sqlite_url, migrations=later(tmp_path, "expand"))
        assert done.copy == tmp_path / f"brain.db.before-{newest(1)}"
        assert str(done.copy) in done.message

    def test_lets_nobody_else_read_file_and_copy(self, tmp_path: Path) -> None:
        prepare(f"sqlite:///{tmp_path / 'brain.db'}")
        prepare(f"sqlite:///{tmp_path / 'brain.db'}", migrations=later(tmp_path, "expand"))
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.glob("brain.db*")}
        assert modes == {0o600}

    def test_copies_what_is_still_in_the_write_ahead_log(
        self, sqlite_url: str, tmp_path: Path
    ) -> None:
        with closing(sqlite3.connect(tmp_path / "brain.db")) as open_elsewhere:
            open_elsewhere.execute("INSERT INTO secrets VALUES ('a', x'00')")
            open_elsewhere.commit()
            done = prepare(sqlite_url, migrations=later(tmp_path, "expand"))
        assert done.copy
        with closing(sqlite3.connect(done.copy)) as copy:
            assert copy.execute("SELECT job FROM secrets").fetchall() == [("a",)]

    def test_a_copy_put_back_is_the_database_from_before(
        self, sqlite_url: str, tmp_path: Path
    ) -> None:
        done = prepare(sqlite_url, migrations=later(tmp_path, "expand"))
        assert done.copy
        assert prepare(f"sqlite:///{done.copy}").message == ""

    def test_leaves_the_copy_of_an_earlier_migration_alone(
        self, sqlite_url: str, tmp_path: Path
    ) -> None:
        steps = later(tmp_path, "expand")
        first = prepare(sqlite_url, migrations=steps).copy
        assert first
        shutil.copy(first, tmp_path / "brain.db")
        with closing(sqlite3.connect(tmp_path / "brain.db")) as put_back:
            put_back.execute("INSERT INTO secrets VALUES ('a', x'00')")
            put_back.commit()
        second = prepare(sqlite_url, migrations=steps).copy
        assert second == tmp_path / f"brain.db.before-{newest(1)}.2"
        rows = []
        for copy in (first, second):
            with closing(sqlite3.connect(copy)) as found:
                rows += found.execute("SELECT count(*) FROM secrets").fetchone()
        assert rows == [0, 1]

    def test_keeps_the_last_three_copies(self, sqlite_url: str, tmp_path: Path) -> None:
        for steps in range(1, 5):
            prepare(sqlite_url, migrations=later(tmp_path / str(steps), *["expand"] * steps))
        kept = sorted(path.name for path in tmp_path.glob("brain.db.before-*"))
        assert kept == [f"brain.db.before-{newest(steps)}" for steps in (2, 3, 4)]

    def test_runs_contract_steps_too(self, sqlite_url: str, tmp_path: Path) -> None:
        done = prepare(sqlite_url, migrations=later(tmp_path, "contract"))
        assert (done.after, done.pending) == (newest(1), ())


class TestPrepareOnPostgresql:
    @pytest.fixture
    def url(self, postgresql: Server) -> Iterator[str]:
        """A database at the newest schema that a test may change."""
        with postgresql.database() as name:
            prepare(postgresql.url(name))
            yield postgresql.url(name)

    def test_stops_before_a_contract_step_and_says_so(self, url: str, tmp_path: Path) -> None:
        done = prepare(url, migrations=later(tmp_path, "expand", "contract", "expand"))
        assert (done.after, done.pending) == (newest(1), (newest(2), newest(3)))
        assert "brain migrate" in done.message

    def test_runs_contract_steps_when_told(self, url: str, tmp_path: Path) -> None:
        steps = later(tmp_path, "expand", "contract")
        prepare(url, migrations=steps)
        assert prepare(url, migrations=steps, contract=True).after == newest(2)
