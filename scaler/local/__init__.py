"""Replicas as processes of this machine."""

from scaler.local.backend import AGENT, LocalBackend
from scaler.local.node import LocalMachine, measure

__all__ = ["AGENT", "LocalBackend", "LocalMachine", "measure"]
