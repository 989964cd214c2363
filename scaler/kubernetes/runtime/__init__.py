"""A small controller runtime: level-triggered, bounded, without knowledge of our kinds.

``cluster`` is the client of the API server, ``reflector`` keeps a ``store`` equal to what is there,
``queue`` and ``controller`` have keys reconciled, ``election`` says who may act, ``status`` and
``events`` tell people, ``manager`` runs it all. Nothing here imports ``kubernetes`` until
``cluster.connect`` is called.
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
from scaler.kubernetes.runtime.election import Election, Terms
from scaler.kubernetes.runtime.events import About, Recorder
from scaler.kubernetes.runtime.manager import Manager
from scaler.kubernetes.runtime.metrics import Metrics
from scaler.kubernetes.runtime.pace import Backoff, Clock, SystemClock
from scaler.kubernetes.runtime.queue import WorkQueue
from scaler.kubernetes.runtime.reflector import Reflector
from scaler.kubernetes.runtime.status import Condition, conditions, write_status
from scaler.kubernetes.runtime.store import Change, Store, meant

__all__ = [
    "About",
    "Backoff",
    "Change",
    "Clock",
    "Cluster",
    "Condition",
    "Controller",
    "Election",
    "Key",
    "Kind",
    "Manager",
    "Metrics",
    "Object",
    "Reconcile",
    "Recorder",
    "Reflector",
    "Result",
    "Store",
    "SystemClock",
    "Terms",
    "WorkQueue",
    "conditions",
    "connect",
    "controller_of",
    "key_of",
    "meant",
    "version_of",
    "write_status",
]
