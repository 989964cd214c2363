"""The door to a Kubernetes API server: kinds, requests, and errors of our domain."""

from brain.errors import Conflict, NotFound
from scaler.kubernetes.runtime.cluster.answers import Page, WatchEvent, WatchStream
from scaler.kubernetes.runtime.cluster.client import ClientLimits, Cluster
from scaler.kubernetes.runtime.cluster.connection import connect
from scaler.kubernetes.runtime.cluster.errors import (
    AlreadyExists,
    Denied,
    Forbidden,
    Gone,
    Invalid,
    NotLeading,
    StatusCause,
    TooMany,
    Unreachable,
    denial,
)
from scaler.kubernetes.runtime.cluster.kind import (
    CONFIG_MAP,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    Key,
    Kind,
    Object,
    controller_of,
    key_of,
    version_of,
)
from scaler.kubernetes.runtime.cluster.transport import Transport

__all__ = [
    "CONFIG_MAP",
    "EVENT",
    "LEASE",
    "NAMESPACE",
    "NODE",
    "POD",
    "SECRET",
    "SERVICE",
    "AlreadyExists",
    "ClientLimits",
    "Cluster",
    "Conflict",
    "Denied",
    "Forbidden",
    "Gone",
    "Invalid",
    "Key",
    "Kind",
    "NotFound",
    "NotLeading",
    "Object",
    "Page",
    "StatusCause",
    "TooMany",
    "Transport",
    "Unreachable",
    "WatchEvent",
    "WatchStream",
    "connect",
    "controller_of",
    "denial",
    "key_of",
    "version_of",
]
