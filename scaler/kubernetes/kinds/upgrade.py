"""``brain migrate --crds``: updates the cluster's kinds to this version without dropping a stored
field.

A schema that knows fewer fields than the installed one drops the others from stored objects at
their next write. So the upgrade first looks for such fields in every stored object.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from brain.errors import BrainError, Conflict, Unavailable
from scaler.kubernetes.kinds.elasticjob import ElasticJob
from scaler.kubernetes.kinds.fields import GROUP, VERSION
from scaler.kubernetes.kinds.generate.schema import definition
from scaler.kubernetes.kinds.scaleplan import ScalePlan
from scaler.kubernetes.runtime.cluster import Cluster, Kind, NotFound, Object, connect

DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
_OWNER = "brain-crds"
#: Seconds for the API server to serve a kind; a healthy server takes milliseconds.
_PATIENCE_SECONDS = 30.0


class Step(StrEnum):
    """The action on one kind."""

    CREATE = "created"
    UPDATE = "updated"
    KEEP = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFields:
    """Fields of one stored object that a schema would drop."""

    #: ``namespace/name``.
    object: str
    fields: tuple[str, ...]


def step(shipped: Object, stored: Object | None) -> Step:
    """Return the action on a kind whose update drops no field."""
    if stored is None:
        return Step.CREATE
    same = _covers(stored, shipped) and _schemas(stored) == _schemas(shipped)
    return Step.KEEP if same else Step.UPDATE


def losses(schema: Mapping[str, Any], objects: Sequence[Object]) -> tuple[DroppedFields, ...]:
    """Return the ``objects`` with fields that ``schema`` would drop."""
    found = []
    for obj in objects:
        # The API server itself keeps all metadata that it knows.
        inner = {key: value for key, value in obj.items() if key in ("spec", "status")}
        fields = tuple(_unknown(inner, schema, ""))
        if fields:
            metadata = obj["metadata"]
            name = f"{metadata.get('namespace', '')}/{metadata['name']}"
            found.append(DroppedFields(object=name, fields=fields))
    return tuple(found)


def upgrade(
    cluster: Cluster,
    *,
    dry_run: bool = False,
    patience_seconds: float = _PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> dict[str, Step]:
    """Apply the kinds; return the action on each.

    Raises:
        Conflict: a stored object would lose fields; nothing was changed.
        Unavailable: the API server does not serve a kind in time.
    """
    done: dict[str, Step] = {}
    kinds = (ElasticJob, ScalePlan)
    shipped = {kind: definition(kind) for kind in kinds}
    for kind in kinds:
        stored = _stored(cluster, shipped[kind])
        done[shipped[kind]["metadata"]["name"]] = step(shipped[kind], stored)
        if stored is not None:
            _refuse_losses(cluster, kind, shipped[kind])
    for crd in shipped.values():
        if done[crd["metadata"]["name"]] is not Step.KEEP:
            cluster.apply(DEFINITIONS, crd, owner=_OWNER, dry_run=dry_run)
            if not dry_run:
                _await(cluster, crd["metadata"]["name"], patience_seconds, sleep)
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        cluster = Cluster(connect(kubeconfig=options.kubeconfig, context=options.context))
        done = upgrade(cluster, dry_run=options.dry_run)
    except BrainError as refused:
        sys.stderr.write(f"brain migrate --crds: {refused}\n")
        return 1
    for name, result in done.items():
        sys.stdout.write(f"{name} {result}{' (dry run)' if options.dry_run else ''}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="brain migrate --crds", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="check and report, change nothing")
    parser.add_argument("--kubeconfig", help="kubeconfig of the cluster")
    parser.add_argument("--context", help="context in the kubeconfig")
    return parser


def _stored(cluster: Cluster, crd: Object) -> Object | None:
    try:
        return cluster.get(DEFINITIONS, "", crd["metadata"]["name"])
    except NotFound:
        return None


def _refuse_losses(cluster: Cluster, kind: type[ElasticJob] | type[ScalePlan], crd: Object) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lost = losses(schema, tuple(_objects(cluster, kind)))
    if lost:
        told = "; ".join(f"{loss.object}: {', '.join(loss.fields)}" for loss in lost[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        raise Conflict(
            f"{crd['metadata']['name']}: {len(lost)} stored objects use fields that this version "
            f"does not know and would drop ({told}{more}); run the version that they were written "
            "for, or remove those fields first"
        )


def _objects(cluster: Cluster, kind: type[ElasticJob] | type[ScalePlan]) -> Iterator[Object]:
    here, continue_ = Kind(GROUP, VERSION, kind.PLURAL, kind.__name__), ""
    while True:
        try:
            page = cluster.list(here, continue_=continue_)
        except NotFound:
            # The definition exists but is not served yet: no object can be stored.
            return
        yield from page.items
        continue_ = page.continue_
        if not continue_:
            return


def _await(
    cluster: Cluster, name: str, patience_seconds: float, sleep: Callable[[float], object]
) -> None:
    for _ in range(max(1, int(patience_seconds / 0.2))):
        status = cluster.get(DEFINITIONS, "", name).get("status") or {}
        conditions = status.get("conditions") or ()
        if {"Established": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items():
            return
        sleep(0.2)
    raise Unavailable(
        f"{name} is not served after {patience_seconds:g} s; `kubectl describe crd {name}` "
        "gives the reason"
    )


def _schemas(crd: Object) -> list[object]:
    return [version.get("schema") for version in crd["spec"]["versions"]]


def _covers(stored: Any, shipped: Any) -> bool:
    """True if ``stored`` has everything in ``shipped`` unchanged, whatever a server added."""
    if isinstance(shipped, Mapping) and isinstance(stored, Mapping):
        return all(key in stored and _covers(stored[key], shipped[key]) for key in shipped)
    if isinstance(shipped, list) and isinstance(stored, list):
        pairs = zip(stored, shipped, strict=False)
        return len(stored) == len(shipped) and all(_covers(*pair) for pair in pairs)
    return bool(stored == shipped)


def _unknown(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            below = known.get(key, rest)
            if below is not None:
                yield from _unknown(inner, below, f"{path}.{key}".lstrip("."))
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{key}".lstrip(".")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unknown(inner, schema.get("items", {}), f"{path}[{index}]")


if __name__ == "__main__":
    sys.exit(main())
