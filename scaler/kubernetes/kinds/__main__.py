"""``python -m scaler.kubernetes.kinds [ROOT]``: writes all files derived from the kinds."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from scaler.kubernetes.kinds.elasticjob import ElasticJob
from scaler.kubernetes.kinds.generate import rbac, reference
from scaler.kubernetes.kinds.generate.schema import definition
from scaler.kubernetes.kinds.rights import INSTALL_RIGHTS, RIGHTS, Scope
from scaler.kubernetes.kinds.scaleplan import ScalePlan

_NOTE = "# Written by `python -m scaler.kubernetes.kinds`; edit the kinds, not this file.\n"


@cache
def files() -> Mapping[str, str]:
    """Return the generated files: their content by path below the repository."""
    crds = {f"{kind.PLURAL}.yaml": [definition(kind)] for kind in (ElasticJob, ScalePlan)}
    chart = "deploy/helm/brain"
    documents: dict[str, list[Any]] = {
        **{f"deploy/crds/{name}": crd for name, crd in crds.items()},
        **{f"{chart}/crds/{name}": crd for name, crd in crds.items()},
        "deploy/kustomize/cluster-wide/rbac.yaml": rbac.cluster_wide(),
        "deploy/kustomize/namespaced/rbac.yaml": rbac.in_own(),
        "deploy/kustomize/namespaced/jobs/rbac.yaml": rbac.in_namespace(),
        "deploy/kustomize/base/people.yaml": rbac.for_people(),
        f"{chart}/files/rules-jobs.yaml": [rbac.rules(RIGHTS, Scope.JOBS)],
        f"{chart}/files/rules-own.yaml": [rbac.rules(RIGHTS, Scope.OWN)],
        f"{chart}/files/rules-cluster.yaml": [rbac.rules(RIGHTS, Scope.CLUSTER)],
        f"{chart}/files/rules-edit.yaml": [rbac.for_editors()],
        f"{chart}/files/rules-view.yaml": [rbac.for_viewers()],
        f"{chart}/files/rules-crds.yaml": [rbac.rules(INSTALL_RIGHTS, Scope.CLUSTER)],
    }
    written = {path: _NOTE + _yaml(content) for path, content in documents.items()}
    return written | {"docs/reference/kubernetes-kinds.md": reference.page()}


def main(root: Path) -> None:
    """Write every file below ``root``."""
    for path, text in files().items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _yaml(documents: list[Any]) -> str:
    each = [
        yaml.dump(document, Dumper=_Plain, sort_keys=False, width=100) for document in documents
    ]
    return "---\n".join(each)


class _Plain(yaml.CSafeDumper):
    """YAML without anchors: machines read it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
