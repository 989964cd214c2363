"""The operator of the benchmark on kopf, without events, for ours writes none here either."""

import argparse
from typing import Any

import kopf

from benchmarks.kubernetes import workload


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Have it write no events."""
    settings.posting.enabled = False


@kopf.on.create(workload.GROUP, workload.VERSION, "scaleplans")
@kopf.on.update(workload.GROUP, workload.VERSION, "scaleplans", field="spec")
async def reconcile(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    """Write the status of a plan."""
    patch.status.update(workload.status(body))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--light", action="store_true", help="sign in without another client")
    if parser.parse_args().light:
        kopf.on.login()(kopf.login_with_kubeconfig)
    kopf.run(standalone=True, namespaces=[workload.NAMESPACE])


if __name__ == "__main__":
    main()
