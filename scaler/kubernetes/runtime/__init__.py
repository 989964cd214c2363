"""A small, level-triggered controller runtime, which does not depend on Brain's kinds.

The numbers of workers, of requests in flight and of waiting events are limited.

``cluster`` is the client of the API server. ``reflector`` keeps a ``store`` in sync with the
cluster's objects. ``queue`` and ``controller`` reconcile keys. ``election`` decides which process
may act, ``status`` and ``events`` inform people, and ``manager`` runs all of them. No module here
imports ``kubernetes`` until ``cluster.connect`` is called.
"""

from scaler.kubernetes.runtime.cluster import (
    Cluster,
    Key,
    Kind,
    Object,
    connect,
    controller_of,
    key_of,
    version_of,
)
from scaler.kubernetes.runtime.controller import Controller, Reconcile, Result
from scaler.kubernetes.runtime.election import Election, ElectionTerms
from scaler.kubernetes.runtime.events import About, Recorder
from scaler.kubernetes.runtime.manager import Manager, served
from scaler.kubernetes.runtime.metrics import RuntimeMetrics
from scaler.kubernetes.runtime.pace import Backoff, Clock, SystemClock
from scaler.kubernetes.runtime.queue import WorkQueue
from scaler.kubernetes.runtime.reflector import Reflector
from scaler.kubernetes.runtime.status import StatusCondition, conditions, write_status
from scaler.kubernetes.runtime.store import Store, StoreChange, meant

__all__ = [
    "About",
    "Backoff",
    "Clock",
    "Cluster",
    "Controller",
    "Election",
    "ElectionTerms",
    "Key",
    "Kind",
    "Manager",
    "Object",
    "Reconcile",
    "Recorder",
    "Reflector",
    "Result",
    "RuntimeMetrics",
    "StatusCondition",
    "Store",
    "StoreChange",
    "SystemClock",
    "WorkQueue",
    "conditions",
    "connect",
    "controller_of",
    "key_of",
    "meant",
    "served",
    "version_of",
    "write_status",
]
