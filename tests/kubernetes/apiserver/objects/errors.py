"""The API server's refusals, each with the ``Status`` body that a real one sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One wrong field of an object: why, in which words, where."""

    reason: str
    message: str
    field: str


class Refused(Exception):
    """A request that is answered with a ``Status`` of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details is not None else None
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details = {**(self.details or {}), "retryAfterSeconds": retry_after_seconds}

    def status(self) -> dict[str, Any]:
        """Return the body."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body


class UnknownPath(Exception):
    """No resource lives at this path; the answer is plain text."""


def qualified(name: str, group: str) -> str:
    """Return ``widgets.example.com``, or ``pods`` of the core group."""
    return f"{name}.{group}" if group else name


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    return {"name": name, **({"group": group} if group else {}), "kind": kind}


def not_found(plural: str, group: str, name: str) -> Refused:
    """There is no such object."""
    message = f'{qualified(plural, group)} "{name}" not found'
    return Refused(404, "NotFound", message, _details(name, group, plural))


def already_exists(plural: str, group: str, name: str) -> Refused:
    """An object of that name is there."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(
    plural: str,
    group: str,
    name: str,
    why: str = "the object has been modified; please apply your changes to the latest version "
    "and try again",
) -> Refused:
    """The object is not what the writer thought it was."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return Refused(409, "Conflict", message, _details(name, group, plural))


def disallowed(
    plural: str, name: str, words: str, causes: Sequence[Mapping[str, str]] = ()
) -> Refused:
    """Something beside the object's own rules says no."""
    details = _details(name, "", plural) | ({"causes": list(causes)} if causes else {})
    return Refused(403, "Forbidden", f'{plural} "{name}" is forbidden: {words}', details)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refused:
    """The object breaks the rules of its kind."""
    lines = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    told = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    return Refused(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {told}',
        {
            **_details(name, group, kind),
            "causes": [
                {"reason": cause.reason, "message": cause.message, "field": cause.field}
                for cause in causes
            ],
        },
    )


def bad_request(message: str) -> Refused:
    """The request cannot be understood."""
    return Refused(400, "BadRequest", message)


def expired(wanted: int, oldest: int) -> Refused:
    """The history that was asked for is gone."""
    return Refused(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def too_large(wanted: int, current: int) -> Refused:
    """A version was asked for that is yet to come."""
    return Refused(
        504,
        "Timeout",
        f"Too large resource version: {wanted}, current: {current}",
        {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after_seconds=1,
    )


def forbidden(user: str, verb: str, plural: str, group: str, name: str, where: str) -> Refused:
    """The caller lacks the right."""
    scope = f'in the namespace "{where}"' if where else "at the cluster scope"
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    message = (
        f'{subject} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
        f'in API group "{group}" {scope}'
    )
    return Refused(403, "Forbidden", message, _details(name, group, plural))


def unsupported_media(accepted: Sequence[str]) -> Refused:
    """A body of a type that this resource does not take."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return Refused(415, "UnsupportedMediaType", message)
