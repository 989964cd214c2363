"""Jobs of members: each in its member's own place, where this machine can isolate it."""

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from brain.confinement import hindrance, make_place
from brain.types.job import JobId
from scaler.files import hand_over

log = logging.getLogger(__name__)

#: Variables of the service's user that another user must not inherit.
_OWN = ("HOME", "USER", "LOGNAME")


class Members:
    """The places of members in a state directory."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def settle(self, member: str | None, job: JobId) -> Path | None:
        """Give a job its directory in the place of its member, and return the place.

        None: the job is the service's own user's, or this machine cannot isolate it. A job stays in
        the place where it began.
        """
        if member is None:
            return None
        service = self._home / "replicas" / job
        began = next(service.glob("*/intent.json"), None) is not None
        if began or self._hindrance:
            return None
        place = make_place(self._home, member)
        directory = place / "brain" / "replicas" / job
        if not directory.is_dir():
            for folder in (directory.parent, directory):
                folder.mkdir(mode=0o700, exist_ok=True)
                hand_over(folder, folder.parent)
            if (service / "token").exists():
                (service / "token").replace(directory / "token")
                hand_over(directory / "token", directory)
        return place

    @cached_property
    def _hindrance(self) -> str | None:
        why = hindrance(self._home)
        if why:
            log.warning("jobs of all submitters run as the user of this scaler: %s", why)
        return why


def environment_of(place: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the initial environment of a member's job."""
    kept = {key: text for key, text in base.items() if not key.startswith(("XDG_", *_OWN))}
    return kept | {"HOME": str(place / "home"), "USER": place.name, "LOGNAME": place.name}
