"""The API server's answers as domain errors.

Invalid (BadInput)          fields of the object cannot be used; ``causes`` names them
NotFound                    no such object, or no such kind (its CRD is not installed)
Conflict                    another client wrote first: read the object and decide again
├── AlreadyExists           the name is taken
├── Gone                    the server no longer keeps a version or list position: list again
└── NotLeading              another operator may act by now, so this operator does not
Forbidden (NotAllowed)      the service account lacks a permission; the message names it
Incapable (NotAllowed)      a pod's node could never hold what the pod is resized to
Denied (NotAllowed)         a policy or a webhook of the cluster refuses; the message says why
NotSignedIn                 no valid credentials
TooMany (Overloaded)        too many requests: wait for ``retry_after_seconds``
Unreachable (Unavailable)   no answer, or a failure inside the server
└── Untrusted               no answer, because a certificate is not accepted
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from brain.errors import (
    BadInput,
    BrainError,
    Conflict,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Overloaded,
    TooLarge,
    Unavailable,
)

#: The API server's words when a webhook or policy denies an object: who, and why.
_DENIAL = re.compile(
    r"""(?:admission (?P<webhook>webhook "[^"]+")|Admission(?P<policy>Policy '[^']+')[^:]*?)"""
    r""" denied (?:the )?request(?:: (?P<words>.*))?""",
    re.DOTALL,
)
#: The first words of the API server's decoder about an object.
_UNREADABLE = " cannot be handled as a "
#: Causes of a refused resize that will also refuse later attempts on the same node (1.36).
_INCAPABLE = frozenset({"NodeCapacity", "UnsupportedPlatform"})
#: Pause after a 429 without a Retry-After.
_RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One reason why an object is invalid."""

    #: Path of the field, for example ``spec.replicas``.
    field: str = ""
    message: str = ""
    reason: str = ""


class Invalid(BadInput):
    """The API server refuses the object; change the fields that ``causes`` names.

    If ``final`` is True, the object breaks the rules of its kind, so every further attempt would be
    refused, too.
    """

    def __init__(
        self, detail: str, causes: Sequence[StatusCause] = (), *, final: bool = False
    ) -> None:
        super().__init__(detail, field=causes[0].field if causes else None)
        self.causes, self.final = tuple(causes), final


class AlreadyExists(Conflict):
    """The name is taken; read the existing object, or choose another name."""


class Gone(Conflict):
    """The server no longer keeps the version or list position; list again from the start."""


class NotLeading(Conflict):
    """This operator no longer holds its lease; the new holder continues."""


class Forbidden(NotAllowed):
    """The service account lacks a permission; grant the verb and resource that the message
    names.
    """


class Incapable(NotAllowed):
    """A pod's node could never hold the pod's new amounts; another node may."""


class Denied(NotAllowed):
    """A policy or webhook of the cluster refuses the object now; its message gives the reason.

    Policy, webhook and their inputs may change, so another attempt after a while is worthwhile.
    """


class TooMany(Overloaded):
    """The API server accepts no more requests now, or a disruption budget allows no eviction now.

    Wait as the message says, then try again.
    """


class Unreachable(Unavailable):
    """No answer, or a failure inside the API server; try again with back-off."""

    def __init__(self, detail: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class Untrusted(Unreachable):
    """One side does not accept the other's TLS certificate; correct the kubeconfig or the server's
    certificate.
    """


class _Details(msgspec.Struct, rename="camel"):
    causes: list[StatusCause] | None = None
    retry_after_seconds: float | None = None


class Status(msgspec.Struct):
    """The API server's answer instead of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


#: Built at import: msgspec is not safe if threads use a class for the first time at once.
_STATUS = msgspec.json.Decoder(Status)


def denial(message: str) -> str | None:
    """Return the policy or webhook that denies an object, and the reason, from the API server's
    message; None if the message is no denial.

    >>> denial('admission webhook "gpu.example.com" denied the request: name a team (400)')
    'webhook "gpu.example.com" denies it: name a team (400)'
    """
    found = _DENIAL.search(message)
    if found is None:
        return None
    who = found["webhook"] or f"p{found['policy'][1:]}"
    return f"{who} denies it: {found['words'] or 'no reason given'}"


def failure(code: int, body: bytes, headers: Mapping[str, str], asked: str) -> BrainError:
    """Return the error for an answer with an HTTP status of 400 or more; ``asked`` describes the
    request.
    """
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        # A proxy answers with a page of its own.
        status = Status(message=body[:200].decode(errors="replace").strip())
    return refusal(code, status, asked, _seconds(headers))


def failed_event(obj: Mapping[str, Any], asked: str) -> BrainError:
    """Return the error for an ERROR event of a watch."""
    status = msgspec.convert(obj, Status, strict=False)
    return refusal(status.code, status, asked)


def refusal(code: int, status: Status, asked: str, after: float | None = None) -> BrainError:
    """Return the error of a status; ``after`` are the seconds of a Retry-After header."""
    said = f"{asked}: {status.message or status.reason or 'no reason given'} ({code})"
    details = status.details or _Details()
    after = after if after is not None else details.retry_after_seconds
    if 400 <= code < 500 and denial(status.message) is not None:
        # A webhook chooses its own code.
        return Denied(said)
    match code:
        case 400 | 405 | 406 | 415 | 422:
            return _invalid(said, status.message, details.causes or ())
        case 401:
            return NotSignedIn(said)
        case 403:
            causes = {each.reason for each in details.causes or ()}
            return Incapable(said) if causes & _INCAPABLE else Forbidden(said)
        case 404:
            return NotFound(said)
        case 409:
            return AlreadyExists(said) if status.reason == "AlreadyExists" else Conflict(said)
        case 410:
            return Gone(said)
        case 413:
            return TooLarge(said)
        case 429:
            seconds = _RETRY_AFTER_SECONDS if after is None else after
            return TooMany(said, retry_after_seconds=seconds)
        case _:
            return Unreachable(said, retry_after_seconds=after)


def _invalid(said: str, message: str, causes: Sequence[StatusCause]) -> Invalid:
    broken = bool(causes) and all(each.field for each in causes)
    return Invalid(said, causes, final=broken or _UNREADABLE in message)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header; a date counts as none: servers send numbers."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None
