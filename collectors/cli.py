"""``brain-collect``: be this machine's collector, or a cluster's, or say how it is."""

import json
import sys

from brain.errors import BadInput
from collectors import loop
from collectors.paths import Home, read_json
from collectors.pods import loop as cluster


def main(arguments: list[str] | None = None) -> int:
    """Run the collector, or with ``--status`` print what it last said of itself."""
    parser = loop.parser()
    parser.add_argument("--status", action="store_true", help="print status.json and end")
    cluster.arguments(parser)
    given = parser.parse_args(arguments)
    if given.kubernetes and not given.status:
        return cluster.run(given)
    if not given.status:
        return loop.run(given)
    home = Home.at(given.home)
    try:
        print(json.dumps(read_json(home.status), indent=1))
    except (OSError, BadInput) as none:
        print(f"no collector has run in {home.root}: {none}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
