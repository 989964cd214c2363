"""Shapes that all routes share: pages, requests, tokens, problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from brain.types.estimate import EstimateQuestion
from brain.types.explanation import Explanation
from brain.types.job import JobId, PolicyMode
from brain.types.resources import PoolName

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list; ``next_page_token`` is None on the last page."""

    items: tuple[T, ...]
    next_page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """A job that is not running yet, and questions about it: the body of ``POST jobs:estimate``."""

    #: The document as it would be submitted, camelCase.
    document: Mapping[str, Any]
    question: EstimateQuestion = EstimateQuestion()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRequest:
    """A request by a person or program for a plan: ``POST jobs/{job}/plans``."""

    replicas: int
    why: str = ""
    #: True: take the nearest size within the job's bounds instead of refusing one beyond them. An
    #: object of a cluster declares a size, and no client waits for a refusal.
    clamp: bool = False
    #: Author of the request, if a scaler passes it on from an object of its cluster; the token
    #: identifies all other authors.
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """The requested amounts, size and batch size of a job: the body of ``PATCH jobs/{job}``; None
    leaves a field unchanged.
    """

    #: Amounts of each replica of the role; without a role, of each replica whose role has no
    #: amounts of its own.
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    #: Number of replicas of the role; without a role, of all roles.
    replicas: int | None = None
    #: Accelerators of each replica; only while no replica of the job runs.
    gpus: int | None = None
    #: Examples of an optimizer step over all workers; only for a script that asks for its batch.
    batch: int | None = None
    #: ``ps``, ``worker``, ``chief`` or ``evaluator``, for a job with roles, or the name of a group.
    role: str | None = None
    why: str = ""
    #: As in ``ResizeRequest``.
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecision:
    """The body of ``:approve``, ``:reject`` and ``:rollback``; ``version`` is the version of the
    plan that the person saw.
    """

    version: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The changes that a request would have made."""

    would: str
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A new token; only this answer shows its secret."""

    id: str
    name: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInCode:
    """A new one-time code, the person whom it signs in, and the path at which it is used."""

    name: str
    code: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token without its secret."""

    id: str
    name: str
    role: str
    job: JobId | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem document of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    #: Path of the field at fault, if a field is.
    field: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the service: ``GET /api/v1/health``, for ``brain doctor`` and the dashboard."""

    version: str
    started_at: datetime
    database: str
    database_bytes: int
    pools: tuple[PoolName, ...]
    policy_mode: PolicyMode
    #: One sentence for each degraded part; empty if no part is.
    degraded: tuple[str, ...]
    #: A warning that the jobs of users who are not administrators are not confined on this machine,
    #: with the reason; empty if they are.
    submitters: str = ""
    #: Largest clock offset of a sender heard lately, in seconds.
    skew_seconds: float
    who: str
    role: str
