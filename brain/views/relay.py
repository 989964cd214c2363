"""Requests that need permissions in a cluster, so the service passes them to the pool's scaler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brain.types.job import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A job document from which the scaler creates an object in the pool's cluster."""

    #: The document, camelCase, with the values of its environment.
    document: Mapping[str, Any]
    owner: str
    #: The sender's idempotency key, for which at most one object is created.
    key: str = ""
    #: True: only have the cluster check the object, and create nothing.
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """A request to read the output of a job's replicas."""

    job: JobId
    #: Replica whose output is read; None: all replicas of which the cluster still has output.
    replica: int | None = None
    #: Most lines of each replica that were printed before the request.
    tail: int
    #: True: continue until the job ends.
    follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A request to look up a replica's pod in the cluster itself, not in a cached copy."""

    job: JobId
    replica: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """A replica's pod, as the cluster reported it after the request."""

    #: True if the pod runs and nobody deleted it: then no later pod of its job was told to form a
    #: world by itself.
    stays: bool
    #: Why it does not stay; empty if it does.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerRequest:
    """A request with the id that its answer will repeat; exactly one of ``submit``, ``logs`` and
    ``pod`` is set.
    """

    id: str
    submit: SubmitRequest | None = None
    logs: LogsRequest | None = None
    pod: PodRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedError:
    """An error of ``brain.errors``, which is identified by the name of its class."""

    kind: str
    detail: str
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerAnswer:
    """An answer to a request, or one part of the answer."""

    #: Id of the created job; None after a dry run.
    job: JobId | None = None
    #: Printed output, in whole lines.
    text: str = ""
    pod: PodSeen | None = None
    #: True if more parts follow.
    more: bool = False
    refusal: RelayedError | None = None
