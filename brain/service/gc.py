"""``brain gc``: deletes directories of ended jobs, and frees unused pages of the database."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from brain.db import SqlStores, missing
from brain.errors import BrainError, Unavailable
from brain.service.disk import ended, expired, sweep
from brain.service.home import database_at, home_of_one, settings_at


def main(arguments: Sequence[str] | None = None) -> int:
    """Free space in an installation, or say what would be freed; return the exit code."""
    parser = argparse.ArgumentParser(prog="brain.service.gc", allow_abbrev=False)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        for line in _lines(asked.home, dry_run=asked.dry_run):
            sys.stdout.write(line + "\n")
    except BrainError as refused:
        said = refused.in_full if isinstance(refused, Unavailable) else str(refused)
        sys.stderr.write(f"brain: {said}\n")
        return 1
    return 0


def _lines(home: Path, *, dry_run: bool) -> Iterator[str]:
    settings = settings_at(home, os.environ)
    url = database_at(home, settings)
    if missing(url):
        raise Unavailable(
            f"{home} has no database of this version; name the state directory with --home. If it "
            "is of an older version, run `brain migrate`"
        )
    now = datetime.now(UTC)
    with closing(SqlStores(url)) as stores:
        chosen = expired(ended(home, stores), settings, now)
        gone = chosen if dry_run else sweep(home, stores, settings, now)
        for job in gone:
            yield f"{job.path}  {_mib(job.size_bytes)}  {job.name}, ended {job.finished_at:%F %R}"
        jobs = f"{len(gone)} job{'' if len(gone) == 1 else 's'}"
        size = _mib(sum(job.size_bytes for job in gone))
        yield f"{'would delete' if dry_run else 'deleted'} the directories of {jobs}, {size}"
        if dry_run:
            yield f"the database can free {_mib(stores.free_bytes())}"
            return
        freed = _shrink(home, stores)
        yield (
            f"the database freed {_mib(freed)}; {_mib(stores.free_bytes())} of unused space are "
            "left in it"
        )


def _shrink(home: Path, stores: SqlStores) -> int:
    try:
        with home_of_one(home):
            return stores.shrink(whole=True)
    except Unavailable:  # a running service would have to wait for the rewriting of the file
        return stores.shrink(whole=False)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
