"""The door to a Kubernetes API server: kinds, requests, and errors of our domain."""

from brain.errors import Conflict, NotFound
from scaler.kubernetes.runtime.cluster.answers import Page, Watch, WatchEvent
from scaler.kubernetes.runtime.cluster.client import Cluster, Limits
from scaler.kubernetes.runtime.cluster.connection import connect
from scaler.kubernetes.runtime.cluster.errors import (
    AlreadyExists,
    Cause,
    Denied,
    Forbidden,
    Gone,
    Invalid,
    NotLeading,
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
    "Cause",
    "Cluster",
    "Conflict",
    "Denied",
    "Forbidden",
    "Gone",
    "Invalid",
    "Key",
    "Kind",
    "Limits",
    "NotFound",
    "NotLeading",
    "Object",
    "Page",
    "TooMany",
    "Transport",
    "Unreachable",
    "Watch",
    "WatchEvent",
    "connect",
    "controller_of",
    "denial",
    "key_of",
    "version_of",
]
