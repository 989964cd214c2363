"""``python -m scaler.kubernetes.doctor``: prints findings as lines of JSON; exits with 1 if any is
bad.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from brain.errors import BrainError
from brain.types.finding import Finding
from scaler.kubernetes.doctor import installed, rights
from scaler.kubernetes.doctor.rights import RightsQuestion
from scaler.kubernetes.runtime.cluster import Cluster, connect

#: Short limits: a person waits.
_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings."""
    given = _parser().parse_args(arguments)
    asking = RightsQuestion(namespaces=tuple(given.namespace), own=given.own, user=given.user)
    broken = False
    for finding in findings(given.kubeconfig, given.context, asking):
        sys.stdout.write(json.dumps(asdict(finding)) + "\n")
        broken |= finding.level == "bad"
    return int(broken)


def findings(
    kubeconfig: str | None, context: str | None, asking: RightsQuestion
) -> Iterator[Finding]:
    """Yield all findings; if the API server does not answer, that is a finding, too."""
    try:
        cluster = Cluster(connect(kubeconfig=kubeconfig, context=context)).hasty(_SECONDS)
    except (BrainError, ImportError) as none:
        yield Finding("bad", "there is no cluster to check", str(none))
        return
    try:
        for part in (installed.examine(cluster), rights.examine(cluster, asking)):
            try:
                yield from part
            except BrainError as why:
                yield Finding("bad", f"the API server at {cluster.host} cannot be asked", str(why))
    finally:
        cluster.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="brain doctor --cluster", description=__doc__)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="namespace that the operator serves; repeatable; default: all",
    )
    parser.add_argument("--own", default="brain", help="namespace of the operator; default: brain")
    parser.add_argument("--user", help="check the permissions of this user instead of your own")
    return parser


if __name__ == "__main__":
    sys.exit(main())
