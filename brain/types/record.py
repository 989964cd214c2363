"""What is written down: events, audit entries, tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from brain.types.job import JobId


class Role(StrEnum):
    """What a token may do; ``brain.api.auth`` has the table of routes."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    SCALER = "scaler"
    #: One job's agents and collector.
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is asking."""

    name: str
    role: Role
    #: The only job that a role ``agent`` may touch.
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as stored: never the secret, its SHA-256."""

    id: str
    name: str
    role: Role
    job: JobId | None = None
    sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; ``id`` rises and is what SSE resumes from."""

    #: Given by the store; 0 before.
    id: int = 0
    at: datetime
    #: ``job.Running``, ``plan.Applying``, ``world.formed``, ``replica.started``, ``hold`` …
    kind: str
    job: JobId | None = None
    #: Generation, epoch or replica that the event is about.
    subject: int | None = None
    #: One sentence for people.
    message: str
    data: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to what, and why; appended, never changed."""

    #: Given by the store; 0 before.
    id: int = 0
    at: datetime
    #: A token's name, or ``policy:auto``, ``brain``.
    actor: str
    action: str
    #: ``job/<id>``, ``plan/<job>/<generation>``, ``freeze/all`` …
    target: str
    before: str = ""
    after: str = ""
    why: str = ""
