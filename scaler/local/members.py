"""Jobs of members (users who are no administrators), each in its member's own directories."""

from collections.abc import Mapping
from pathlib import Path

from brain.confinement import keep_in, make_place, place_of
from brain.types.job import JobId
from scaler.files import hand_over

#: Variables of the service's user that mean nothing to another.
_OWN = ("HOME", "USER", "LOGNAME")


class Members:
    """The directories of members (users who are no administrators) in a state directory."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def settle(self, member: str | None, job: JobId) -> Path | None:
        """Create a job's directory among its member's directories, and return the member's
        directory.

        Return None if the job belongs to the service's own user. A job that has a directory already
        stays there.
        """
        if place := place_of(self._home, job):
            return place
        service = self._home / "replicas" / job
        if member is None or next(service.glob("*/intent.json"), None) is not None:
            return None
        place = make_place(self._home, member)
        directory = place / "brain" / "replicas" / job
        for folder in (directory.parent, directory):
            folder.mkdir(mode=0o700, exist_ok=True)
            hand_over(folder, folder.parent)
        if (service / "token").exists():
            (service / "token").replace(directory / "token")
            hand_over(directory / "token", directory)
        keep_in(self._home, place, job)
        return place


def environment_of(place: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return the initial environment of a member's job."""
    kept = {key: text for key, text in base.items() if not key.startswith(("XDG_", *_OWN))}
    return kept | {"HOME": str(place / "home"), "USER": place.name, "LOGNAME": place.name}
