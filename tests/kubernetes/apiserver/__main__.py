"""``python -m tests.kubernetes.apiserver``: the emulator as a process of its own.

For benchmarks, whose operator's memory and CPU must not be mixed with the server's. Prints one line
``<url> <kubeconfig>`` once it serves, and ends with its standard input.
"""

import argparse
import gc
import sys
import tempfile
from pathlib import Path

from tests.kubernetes.apiserver import serving
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.scheduling import Scheduler


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definitions", type=Path, nargs="*", help="YAML files of kinds")
    parser.add_argument("--nodes", type=int, default=0, help="play so many nodes and their pods")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--history", type=int, default=20_000, help="writes a watch may go back")
    parser.add_argument(
        "--bare", action="store_true", help="nothing runs beside it, as under envtest"
    )
    options = parser.parse_args()
    # Objects live long here: looking for cycles among them costs more than it frees.
    gc.set_threshold(100_000, 50, 100)
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(
            Path(directory),
            definitions=options.definitions,
            history=options.history,
            bare=options.bare,
        ) as server,
    ):
        if options.nodes:
            kubelet = FakeKubelet(server)
            Scheduler(server)
            names = [f"node-{i:04}" for i in range(options.nodes)]
            kubelet.add_nodes(*names, gpus=options.gpus)
        print(server.url, server.kubeconfig, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
