"""Confinement: it keeps the jobs of non-administrators apart from the service on one machine.

Each such person, a *member*, has a directory in the state directory, ``members/<hash of the name>``
(the member's *place*):

    brain/  the state directory of its jobs' agents: replicas, collector, spool
    home/   ``$HOME`` of its jobs

``members/jobs/<job>`` is the service's link to the directory of a job's replicas. The service finds
a job's member by this link alone, never by files that a job creates.

If Brain runs as root, both directories belong to a user id that Brain assigns to the member, and
the member's jobs run as that user. The place itself belongs to the service, so that a job cannot
replace one directory with the other; a job may make links only in ``home``. Otherwise jobs run as
the service's user, in namespaces that show only these two directories of the state directory.
``python -m brain.confinement`` starts a command in either case.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

#: First user id of members: above those that systemd and containers use.
FIRST_USER = 1_900_000_000
#: The same in a container with only the usual 65,536 users.
FIRST_USER_OF_FEW = 60_600
#: With these options no file or variable of a job can shadow Brain's packages.
_PROGRAM = (sys.executable, "-E", "-P", "-m", "brain.confinement")
#: Prefix of a job's variables on their way through the confining program, in which variables such
#: as ``LD_PRELOAD`` would otherwise run the job's code.
_VEIL = "JOB_"
_REHEARSAL_SECONDS = 60.0


def hindrance(home: Path) -> str | None:
    """Return why members' jobs cannot be confined on this machine; None if they can be confined.

    The check is a rehearsal: it starts a harmless command as if it were a member's job.
    """
    try:
        place = make_place(home, "")
        nothing = (sys.executable, "-E", "-P", "-c", "import brain.confinement")
        done = subprocess.run(
            confined(home, place, "/", nothing),
            env=veiled({"HOME": str(place / "home")}),
            capture_output=True,
            text=True,
            timeout=_REHEARSAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as cannot:
        return str(cannot)
    said = done.stderr.strip().splitlines() or [
        f"the trial of an isolated job exited with code {done.returncode}"
    ]
    return said[-1] if done.returncode else None


def confined(home: Path, place: Path, directory: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs ``command`` in ``directory``, confined to a
    member's place.
    """
    return [*_PROGRAM, str(home), str(place), directory, *command]


def veiled(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which to start the command line that ``confined`` returns.

    The confined command gets ``environment``. In the result each name has a prefix, which
    ``unveiled`` removes again.
    """
    return {_VEIL + name: value for name, value in environment.items()}


def unveiled(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that was given to ``veiled``, from an environment that ``veiled``
    returned.
    """
    given = environment.items()
    return {name.removeprefix(_VEIL): text for name, text in given if name.startswith(_VEIL)}


def make_place(home: Path, member: str) -> Path:
    """Return a member's place; create the place if it is missing.

    Raises:
        OSError: the place cannot be created, or cannot be given to the member's user id.
    """
    place = home / "members" / sha256(member.encode()).hexdigest()[:12]
    root = os.geteuid() == 0
    place.parent.mkdir(mode=0o711, exist_ok=True)
    if not place.exists():
        owner = _free_user(place.parent) if root else os.geteuid()
        unfinished = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            unfinished.mkdir(mode=0o711, exist_ok=True)
            for folder in (unfinished / "brain", unfinished / "home"):
                folder.mkdir(mode=0o700, exist_ok=True)
                if root:
                    os.chown(folder, owner, owner)
            unfinished.rename(place)
        except OSError:  # another Brain process was faster, or chown failed
            shutil.rmtree(unfinished, ignore_errors=True)
            if not place.exists():
                raise
    if root:
        _let_pass(home)
    return place


def keep_in(home: Path, place: Path, job: str) -> Path:
    """Assign a job to a member's place permanently; return the directory of the job's replicas."""
    link = _jobs(home) / job
    link.parent.mkdir(mode=0o700, exist_ok=True)
    directory = Path(place.name, "brain", "replicas", job)
    link.symlink_to(Path("..", directory))
    return home / "members" / directory


def place_of(home: Path, job: str) -> Path | None:
    """Return the place to which a job is assigned; None for a job that is not confined."""
    with suppress(FileNotFoundError):
        return home / "members" / (_jobs(home) / job).readlink().parts[1]
    return None


def job_directory(home: Path, job: str) -> Path:
    """Return the directory of a job's replicas: in its member's place or, if the job is not
    confined, in the service's state directory.
    """
    place = place_of(home, job)
    return (home if place is None else place / "brain") / "replicas" / job


def forget_job(home: Path, job: str) -> None:
    """Remove a job's assignment to a place, once the job's directory is gone."""
    (_jobs(home) / job).unlink(missing_ok=True)


def kept_jobs(home: Path) -> list[str]:
    """Return all jobs that are assigned to a place."""
    return os.listdir(_jobs(home)) if _jobs(home).is_dir() else []


def _jobs(home: Path) -> Path:
    return home / "members" / "jobs"


def _let_pass(home: Path) -> None:
    """Let users of places pass through the state directory without seeing its content."""
    for each in home.iterdir():
        if each.name != "members" and not each.is_symlink():
            with suppress(FileNotFoundError):  # the file was replaced meanwhile
                each.chmod(each.stat().st_mode & 0o700)
    home.chmod(0o711)


def _free_user(places: Path) -> int:
    """Return the user id after the highest one that a place has."""
    last = Path("/proc/self/uid_map").read_text().split()
    first = FIRST_USER if int(last[0]) + int(last[2]) > FIRST_USER else FIRST_USER_OF_FEW
    return max([first - 1, *(home.lstat().st_uid for home in places.glob("*/home"))]) + 1
