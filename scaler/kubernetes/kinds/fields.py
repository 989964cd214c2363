"""Building blocks of the kinds' fields: one declaration has type, bounds, default, text and rules.

The description of a field is the ``#:`` comment above it; the rules are in ``RULES`` of its struct.
``scaler.kubernetes.kinds.generate`` turns both into schema and reference; ``reading`` checks
objects by the same types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

GROUP = "elastic.iml.github.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
#: Label by which a job is put into a queue of Kueue.
QUEUE = "kueue.x-k8s.io/queue-name"

#: Most replicas. A larger number is a mistake; the API server estimates CEL's cost by it. Equal to
#: ``brain.types.job.MOST_REPLICAS``.
MOST = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that the API server enforces, with the message of a refusal."""

    #: CEL over ``self`` (and ``oldSelf``, where the rule is about a change).
    cel: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column that ``kubectl get`` prints; ``wide`` columns only with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Fields(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object inside a kind; this program ignores unknown fields, and the API server drops
    them.
    """

    RULES: ClassVar[tuple[Rule, ...]] = ()


Name = Annotated[str, Meta(max_length=253)]
Text = Annotated[str, Meta(max_length=1024)]
GroupName = Annotated[str, Meta(max_length=63)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Int64 = Annotated[int, Meta(ge=0, extra={"format": "int64"})]

#: The pattern by which the API server itself checks quantities.
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

#: Any value, kept as it came.
Opaque = Annotated[
    Mapping[str, Any],
    Meta(extra_json_schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]

_KEPT: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
#: A pod template: fields that are not named here are kept, so fields of every release of Kubernetes
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
    """The metadata fields that Brain reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
