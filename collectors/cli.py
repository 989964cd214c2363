"""``brain-collect``: runs the collector of this machine or of a cluster, or prints its status."""

import json
import sys
from datetime import UTC, datetime

from brain.errors import BadInput
from collectors import loop
from collectors.paths import Home, read_json
from collectors.pods import loop as cluster


def main(arguments: list[str] | None = None) -> int:
    """Run the collector, or print its last status with ``--status``; return the exit code."""
    parser = loop.parser()
    parser.add_argument("--status", action="store_true", help="print status.json and exit")
    parser.add_argument(
        "--fresh",
        type=float,
        help=("with --status: fail if the status is older than this many seconds"),
    )
    cluster.arguments(parser)
    given = parser.parse_args(arguments)
    if given.kubernetes and not given.status:
        return cluster.run(given)
    if not given.status:
        return loop.run(given)
    home = Home.at(given.home)
    try:
        said = read_json(home.status)
    except (OSError, BadInput) as none:
        print(f"no collector has run in {home.root}: {none}", file=sys.stderr)
        return 1
    print(json.dumps(said, indent=1))
    return 0 if given.fresh is None or age_seconds(said, datetime.now(UTC)) <= given.fresh else 1


def age_seconds(status: dict[str, object], now: datetime) -> float:
    """Return the seconds since the collector last wrote its status.

    >>> age_seconds({"at": "2026-01-01T00:00:00+00:00"}, datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    60.0
    """
    return (now - datetime.fromisoformat(str(status["at"]))).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
