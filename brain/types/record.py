"""Stored records: events, audit entries, tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from brain.types.job import JobId


class Role(StrEnum):
    """The role of a token, which determines the routes that it may use (table in
    ``brain.api.auth``).
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    SCALER = "scaler"
    #: The rights of one job's agents and collector.
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The person or program that sends a request: name and role of the token."""

    name: str
    role: Role
    #: The only job that the role ``agent`` may access.
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A stored token. It contains the SHA-256 of the token's secret, never the secret itself."""

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
    """An event. Ids increase; a client of the event stream resumes after the last id it read."""

    #: Id, assigned by the store; 0 before.
    id: int = 0
    at: datetime
    #: ``job.Running``, ``plan.Applying``, ``world.formed``, ``replica.started``, ``hold`` …
    kind: str
    job: JobId | None = None
    #: Generation, epoch or replica of the event.
    subject: int | None = None
    #: The event in one sentence for people.
    message: str
    data: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An action with its author, target and reason; entries are only appended, never changed."""

    #: Id, assigned by the store; 0 before.
    id: int = 0
    at: datetime
    #: Author: a token's name, ``policy:auto`` or ``brain``.
    actor: str
    action: str
    #: Target: ``job/<id>``, ``plan/<job>/<generation>``, ``freeze/all`` …
    target: str
    before: str = ""
    after: str = ""
    why: str = ""
