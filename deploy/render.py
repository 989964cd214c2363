"""``python -m deploy.render``: write the manifests that follow from the chart, and its files."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from deploy.gotemplate import Chart

HERE = Path(__file__).parent
CHART = HERE / "helm" / "brain"
_NOTE = "# Rendered from deploy/helm/brain by `python -m deploy.render`; edit the chart instead.\n"
_TRIAL = {"database": {"kind": "bundled"}}


class _Plain(yaml.CSafeDumper):
    """Without anchors: they are for machines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _written(objects: list[dict[str, Any]]) -> str:
    parts = [yaml.dump(obj, Dumper=_Plain, sort_keys=False, width=100) for obj in objects]
    return _NOTE + "---\n".join(parts)


def _hook(obj: Mapping[str, Any]) -> bool:
    return "helm.sh/hook" in (obj["metadata"].get("annotations") or {})


@cache
def files() -> Mapping[str, str]:
    """Path below ``deploy`` -> content, of all that follows from the chart and its neighbours."""
    chart = Chart(CHART)
    whole = [obj for obj in chart.render() if not _hook(obj)]
    base = [obj for obj in whole if "rbac.authorization.k8s.io" not in obj["apiVersion"]]
    trial = [obj for obj in chart.render(_TRIAL) if not _hook(obj)]
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in whole}
    database = [obj for obj in trial if (obj["kind"], obj["metadata"]["name"]) not in names]
    kinds = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "crds").glob("*.yaml"))]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "brain",
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    return {
        "kustomize/base/brain.yaml": _written(base),
        "kustomize/base/namespace.yaml": _written([namespace]),
        "kustomize/trial/postgresql.yaml": _written(database),
        "plain/brain.yaml": _written([*kinds, namespace, *trial]),
        "helm/brain/files/alerts.yaml": (HERE / "prometheus" / "alerts.yaml").read_text(),
        "helm/brain/files/dashboard-brain.json": (HERE / "grafana" / "brain.json").read_text(),
        "helm/brain/files/dashboard-scaler.json": (HERE / "grafana" / "scaler.json").read_text(),
    }


def main() -> None:
    """Write them."""
    # The chart's own files first: it is rendered with them.
    for path, text in sorted(files().items()):
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
