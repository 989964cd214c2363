"""Pools and freezes: a pool's jobs share a set of nodes, and Brain decides about them together;
a freeze stops plans.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from brain.types.resources import PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLease:
    """The right of one Brain process to decide about a pool, until ``expires_at``."""

    pool: PoolName
    holder: str
    #: Grows with every change of holder; each write of a turn checks it.
    term: int
    expires_at: datetime


class FreezeScope(StrEnum):
    ALL = "all"
    PROJECT = "project"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A freeze: Brain applies no plans in its scope, but still decides and replaces failed
    replicas.
    """

    scope: FreezeScope
    #: Project name or job id; empty for ``all``.
    target: str = ""
    by: str
    why: str
    at: datetime
