"""Measures the advice on resources, given by the code path of the service.

    make bench-resources [SEED=n] [ONLY=e]

(a) CPU requests against real use, compared with Kubernetes' vertical autoscaler; (b) simulated jobs
with parameter servers, compared with their owners' reservations and with the rules of DLRover; (c)
amounts of a script's second run; (d) warnings of memory leaks; (e) real jobs that leak, wait for
their loader or are stopped by their quota; (f) a real job with parameter servers.

Rows (b), (c) and (d) are measured for three seeds: two fixed ones, and ``SEED`` or the first eight
hex digits of the last commit that changed ``brain/models/resources``. ``ONLY=e`` runs (e) alone,
whose rows have a table of their own.
"""

import subprocess
import sys

from benchmarks.report import publish
from benchmarks.resources import beginning, needs, recommending, requests, servers, warnings

_FIXED = (1, 2)


def main(arguments: list[str]) -> None:
    """Evaluate all rows, or row (e) alone."""
    command = "make bench-resources ONLY=e"
    publish("resources-real", "Real jobs that lack something", needs.rows(), command=command)
    if arguments == ["e"]:
        return
    last = int(arguments[0]) if arguments else _seed_of_code()
    seeds = (*_FIXED, last)
    trained = [row for seed in seeds for row in recommending.rows(seed)]
    begun = [row for seed in seeds for row in beginning.rows(seed)]
    leaks = [row for seed in seeds for row in warnings.rows(seed)]
    rows = [*requests.rows(), *trained, *begun, *leaks, *servers.rows()]
    publish("resources", "Advice on resources", rows)


def _seed_of_code() -> int:
    git = ["git", "log", "-1", "--format=%H", "--", "brain/models/resources"]
    return int(subprocess.run(git, check=True, capture_output=True, text=True).stdout[:8], 16)


if __name__ == "__main__":
    main(sys.argv[1:])
