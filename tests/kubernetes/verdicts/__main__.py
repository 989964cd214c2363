"""``python -m tests.kubernetes.verdicts``: record the verdicts of a real kube-scheduler."""

import argparse
import sys
import time
from pathlib import Path

from brain.errors import BadInput
from scaler.kubernetes.runtime.cluster import Cluster, connect
from tests.kubernetes.clusters import VARIABLE, real_kubeconfig
from tests.kubernetes.verdicts.drawing import drawn
from tests.kubernetes.verdicts.golden import DATA, Source, Verdicts, save
from tests.kubernetes.verdicts.recorder import recording


def main() -> None:
    """Record, and tell how far it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, default=real_kubeconfig(), help=f"else what {VARIABLE} names"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=DATA)
    options = parser.parse_args()
    if options.kubeconfig is None:
        parser.error(f"name a control plane without nodes: --kubeconfig, or {VARIABLE}")
    cluster, found = Cluster(connect(kubeconfig=str(options.kubeconfig))), list[Verdicts]()
    began = time.monotonic()
    try:
        with recording(cluster) as recorder:
            for number in range(options.clusters):
                found.append(recorder.record(number, drawn(options.seed, number)))
                if len(found) % 50 == 0:
                    print(f"{len(found)} clusters, {time.monotonic() - began:.0f} s", flush=True)
    except BadInput as why:
        sys.exit(f"{why}")
    version = cluster.read("/version")["gitVersion"]
    source = Source(kubernetes=version, seed=options.seed, clusters=len(found))
    save(source, found, options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
