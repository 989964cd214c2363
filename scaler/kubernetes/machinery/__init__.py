"""A small controller runtime: level-triggered, bounded, without knowledge of our kinds.

``cluster`` is the door to the API server, ``reflector`` keeps a ``store`` equal to what is there,
``queue`` and ``controller`` have keys reconciled, ``election`` says who may act, ``status`` and
``events`` tell people, ``manager`` runs it all. Nothing here imports ``kubernetes`` until
``cluster.connect`` is called.
"""

from scaler.kubernetes.machinery.cluster import (
    Cluster,
    Key,
    Kind,
    Object,
    connect,
    controller_of,
    key_of,
    version_of,
)
from scaler.kubernetes.machinery.controller import Controller, Reconcile, Result
from scaler.kubernetes.machinery.election import Election, Terms
from scaler.kubernetes.machinery.events import About, Recorder
from scaler.kubernetes.machinery.manager import Manager
from scaler.kubernetes.machinery.metrics import Metrics
from scaler.kubernetes.machinery.pace import Backoff, Clock, SystemClock
from scaler.kubernetes.machinery.queue import WorkQueue
from scaler.kubernetes.machinery.reflector import Reflector
from scaler.kubernetes.machinery.status import Condition, conditions, write_status
from scaler.kubernetes.machinery.store import Change, Store, meant

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
