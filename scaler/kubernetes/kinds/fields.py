"""Building blocks of the kinds' fields: one declaration says type, bounds, default, text and rules.

A field's description is the ``#:`` comment above it, its rules stand in ``RULES`` of its struct.
``scaler.kubernetes.kinds.generate`` turns both into schema and reference; ``reading`` holds objects
to the same types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

GROUP = "elastic.iml.github.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

#: More is a mistake, and CEL's cost is estimated by it; as ``brain.types.job.MOST_REPLICAS``.
MOST = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule by which the API server refuses an object at once, with its message."""

    #: CEL over ``self`` (and ``oldSelf``, where it is about a change).
    cel: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column that ``kubectl get`` prints; ``wide`` ones only with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Fields(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object inside a kind: unknown fields are tolerated here, pruned by the API server."""

    RULES: ClassVar[tuple[Rule, ...]] = ()


Name = Annotated[str, Meta(max_length=253)]
Text = Annotated[str, Meta(max_length=1024)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Int64 = Annotated[int, Meta(ge=0, extra={"format": "int64"})]

#: As the API server itself checks quantities.
QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"  # noqa: E501
Quantity = Annotated[
    str | int | float,
    Meta(
        extra_json_schema={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": True,
        },
        extra={"form": "a quantity: `2`, `500m`, `3Gi`"},
    ),
]
Amounts = Annotated[Mapping[str, Quantity], Meta(max_length=32)]

#: Anything; kept as it came.
Opaque = Annotated[
    Mapping[str, Any],
    Meta(extra_json_schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]

_KEPT: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
#: A pod template: what is not named here is kept, so that fields of every release of Kubernetes
#: go through.
PodTemplate = Annotated[
    Mapping[str, Any],
    Meta(
        extra_json_schema={
            "type": "object",
            "properties": {
                "metadata": _KEPT,
                "spec": {
                    **_KEPT,
                    "required": ["containers"],
                    "properties": {
                        "containers": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                **_KEPT,
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}},
                            },
                        }
                    },
                },
            },
        },
        extra={"form": "a pod template: `metadata` and `spec` with `containers`"},
    ),
]


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that are read of an object's metadata."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
