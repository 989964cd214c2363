"""``brain-scale``: starts and stops the replicas of one pool, on this machine or in a cluster."""

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from brain.client import AsyncBrainClient
from brain.errors import BrainError
from scaler.desired import WishFile
from scaler.local import LocalBackend, measure
from scaler.loop import Scaler

#: Exit code if another scaler serves this state directory (EX_TEMPFAIL).
TAKEN = 75


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; agents continue to run."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Every poll would write a line of the log otherwise.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    home = options.home.expanduser().absolute()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.kubernetes:
        return _in_cluster(options, home)
    options.pool = options.pool or "local"
    try:
        token = (home / "scaler.token").read_text().strip()
    except OSError as why:
        print(
            f"brain-scale: {why}; start Brain's service once, which writes this file",
            file=sys.stderr,
        )
        return 1
    with _alone(home / "scaler.lock") as alone:
        if not alone:
            print(
                f"brain-scale: another scaler manages {home}; stop that scaler first",
                file=sys.stderr,
            )
            return TAKEN
        try:
            asyncio.run(_serve(home, options.url, token, options.pool, options.slots))
        except BrainError as why:  # a URL or a token that no request can use
            print(f"brain-scale: {why}", file=sys.stderr)
            return 1
    return 0


def _in_cluster(options: argparse.Namespace, home: Path) -> int:
    """Run as the operator of a cluster.

    Only this function imports ``kubernetes``.
    """
    from scaler.kubernetes.operator.operator import Operator
    from scaler.kubernetes.operator.options import operator_options

    try:
        return Operator(operator_options(options, home)).run()
    except (BrainError, OSError) as why:
        print(f"brain-scale: {why}", file=sys.stderr)
        return 1


async def _serve(home: Path, url: str, token: str, pool: str, slots: int | None) -> None:
    backend = LocalBackend(
        home,
        measure=lambda: measure(slots=slots),
        name=socket.gethostname(),
        pool=pool,
        url=url,
    )
    async with AsyncBrainClient(url, token) as client:
        file = WishFile(home / "wishes.json")
        scaler = Scaler(client, backend, file, pool=pool, clock=lambda: datetime.now(UTC))
        await serve(scaler)


async def serve(scaler: Scaler) -> None:
    """Run a scaler until SIGTERM or SIGINT.

    If a child process ends, the scaler checks its jobs immediately.
    """
    loop = asyncio.get_running_loop()
    work = asyncio.create_task(scaler.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    loop.add_signal_handler(signal.SIGCHLD, scaler.wake)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("the scaler stops; agents keep running")


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold the lock of the state directory's scaler; yield False if another scaler holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="brain-scale", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("BRAIN_HOME", "~/.brain")))
    parser.add_argument(
        "--brain",
        "--url",
        dest="url",
        required=True,
        metavar="URL",
        help="base URL of Brain's service; none (in a cluster): start and heal jobs without Brain",
    )
    parser.add_argument(
        "--pool",
        help=("pool of the replicas started here; default: local, or kubernetes in a cluster"),
    )
    parser.add_argument(
        "--slots",
        type=_positive,
        help="number of CPUs to offer to jobs; default: all that this process may use",
    )
    cluster = parser.add_argument_group("in a cluster")
    cluster.add_argument(
        "--kubernetes", action="store_true", help=("run as the operator of a cluster")
    )
    cluster.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="N",
        help=("serve only the jobs of this namespace; repeatable; default: all namespaces"),
    )
    cluster.add_argument(
        "--submit-to",
        action="append",
        default=[],
        metavar="N",
        help=(
            "let `brain submit` create jobs in this namespace, which is also their project; "
            "repeatable"
        ),
    )
    cluster.add_argument("--own-namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    cluster.add_argument(
        "--kubeconfig", help="file; default: $KUBECONFIG, else the pod's service account"
    )
    cluster.add_argument("--context")
    cluster.add_argument(
        "--token-file",
        type=Path,
        help=("file with a token of the role scaler; default: scaler.token in --home"),
    )
    cluster.add_argument("--pods-url", help="URL at which pods reach Brain; default: --brain")
    cluster.add_argument(
        "--agent-image",
        help=(
            "image from which Brain's agent is copied into each pod; `own`: the image of this "
            "pod; default: nothing is copied"
        ),
    )
    cluster.add_argument(
        "--agent-python",
        help=(
            "interpreter that runs Brain's agent in the containers of jobs; without --agent-image "
            "the images of jobs must contain the agent"
        ),
    )
    cluster.add_argument(
        "--mode",
        default="shadow",
        choices=("off", "shadow", "approve", "auto"),
        help="default policy mode of jobs: who approves plans (default: %(default)s)",
    )
    cluster.add_argument(
        "--metrics", metavar="[HOST]:PORT", help=("address that serves probes and metrics")
    )
    cluster.add_argument(
        "--workers",
        type=_positive,
        default=4,
        help=("number of objects reconciled at the same time"),
    )
    cluster.add_argument(
        "--in-flight",
        type=_positive,
        default=8,
        help="most requests to the API server at the same time",
    )
    cluster.add_argument(
        "--poll-seconds", type=float, default=2.0, help=("seconds between two polls of Brain")
    )
    cluster.add_argument(
        "--lease-seconds",
        type=float,
        default=7.0,
        help=("seconds after which another operator replaces a leader that is lost"),
    )
    cluster.add_argument(
        "--lost-node-seconds",
        type=float,
        default=30.0,
        help=(
            "seconds after which a node that is not ready counts as lost, and its pods are replaced"
        ),
    )
    cluster.add_argument("--host-ports", default="20000-29999", metavar="FIRST-LAST")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
