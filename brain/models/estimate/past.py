"""The record of a job that ran, and the likeness of two jobs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from brain.models.fitting import Point
from brain.models.resources.cpu import CpuUsage
from brain.types.job import JobDocument, JobId

#: Least likeness of jobs whose measurements count (models.md section 3.5).
ALIKE = 0.5
#: The most neighbours that count.
MOST = 10
#: Likeness by each common property; differing arguments subtract up to ``_ARGUMENTS``. Assumed, not
#: measured: only their order matters (models.md section 3.5).
_SAME_TEXT, _SAME_NAME, _EDITED = 1.0, 0.9, 0.8
_SAME_NETWORK, _SAME_IMAGE, _SAME_OWNER = 0.7, 0.6, 0.3
_OTHER_OWNER, _OTHER_IMAGE, _OTHER_NETWORK, _ARGUMENTS = 0.9, 0.8, 0.7, 0.3
#: Options that name the network.
_NETWORKS = re.compile(r"--?(arch|model|model[-_]name([-_]or[-_]path)?|network|config)")
#: Options on a run's length and paths, which are ignored; measurements show the batch anyway.
_ASIDE = re.compile(
    r"--?(.*(steps|epochs|seconds|checkpoint|output|save|log|seed|dir|batch|resume).*|o)"
)
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, as its job document describes it."""

    owner: str
    image: str | None = None
    #: File or module, without its directory; empty if the document only names an image.
    name: str = ""
    #: Hash of the script's text; None if it was not taken.
    text: str | None = None
    #: Options with their values, without those of ``_ASIDE``.
    arguments: frozenset[str] = frozenset()
    #: Options that give the size of a batch.
    batches: frozenset[str] = frozenset()

    @property
    def network(self) -> str | None:
        """Return the option that names the network, such as ``--model=bert``; None if no option
        does.
        """
        named = sorted(one for one in self.arguments if _NETWORKS.fullmatch(one.split("=")[0]))
        return named[0] if named else None

    def runs_again(self, other: "Script") -> bool:
        """Return True if another job of this owner runs the same script. Text, name, image and
        arguments must be equal, but numeric argument values may differ (``vgg11`` is not a number).
        """
        known = self.text is not None and other.text is not None
        return (
            bool(self.name or self.image)
            and (self.owner, self.image, self.name) == (other.owner, other.image, other.name)
            and (self.text == other.text or not known)
            and _worded(self.arguments) == _worded(other.arguments)
        )


def _worded(arguments: frozenset[str]) -> frozenset[str]:
    """Return the arguments, with every numeric value replaced by ``#``."""
    split = [one.rpartition("=") for one in arguments]
    return frozenset(
        f"{name}{given}{'#' if _NUMBER.fullmatch(value) else value}" for name, given, value in split
    )


def script_of(document: JobDocument, owner: str) -> Script:
    """Return the script that a document runs.

    >>> from brain.types.job import JobDocument
    >>> document = JobDocument(name="x", command=("python", "a/train.py", "--lr", "1"))
    >>> found = script_of(document, "me")
    >>> found.name, sorted(found.arguments)
    ('train.py', ['--lr=1'])
    """
    words = list(document.command)
    at = _place(words)
    options = _options(words[at + 1 :])
    return Script(
        owner=owner,
        image=document.image,
        name=words[at].rpartition("/")[2] if words else "",
        text=document.script_hash,
        arguments=frozenset(one for one in options if not _ASIDE.fullmatch(one.split("=")[0])),
        batches=frozenset(one for one in options if "batch" in one.split("=")[0]),
    )


def _place(words: Sequence[str]) -> int:
    """Return the position of the script in a command."""
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words):
            return at + 1
        if word.endswith(".py"):
            return at
    return 0


def _options(words: Sequence[str]) -> list[str]:
    """Return options as ``--name=value``, in whichever form they were written."""
    found: list[str] = []
    for word in words:
        if word.startswith("-") or not found or "=" in found[-1] or not found[-1].startswith("-"):
            found.append(word)
        else:
            found[-1] += f"={word}"
    return found


def likeness(one: Script, other: Script) -> tuple[float, str]:
    """Return the likeness of two jobs (0 to 1), and the names of the properties that are equal.

    An equal text has the largest weight, then the script's name, the network that an option names,
    the image and the owner. Differing options subtract up to 0.3.

    >>> mine = Script(owner="ada", name="train.py", text="a1", arguments=frozenset({"--lr=1"}))
    >>> likeness(mine, mine)
    (1.0, 'script, owner, arguments')
    """
    same_owner, same_image = one.owner == other.owner, one.image == other.image
    scripts = bool(one.name) and one.name == other.name
    networks = one.network is not None and one.network == other.network
    images = one.image is not None and same_image
    if not (scripts or networks or images):
        return (_SAME_OWNER, "owner") if same_owner else (0.0, "nothing")
    if scripts:
        known = one.text is not None and other.text is not None
        level = (_SAME_TEXT if one.text == other.text else _EDITED) if known else _SAME_NAME
        what = "script" if level == _SAME_TEXT else "name of the script"
    else:
        level, what = (_SAME_NETWORK, "network") if networks else (_SAME_IMAGE, "image")
    level *= 1.0 if same_owner else _OTHER_OWNER
    level *= 1.0 if same_image else _OTHER_IMAGE
    if one.network is not None and other.network is not None and not networks:
        level *= _OTHER_NETWORK
    shared = _shared(one.arguments, other.arguments)
    level *= 1 - _ARGUMENTS * (1 - shared)
    words = [what, *["owner"] * same_owner, *["arguments"] * (shared == 1.0)]
    return level, ", ".join(words)


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of options that both have (Jaccard, 1901); 1 if neither has any."""
    every = one | other
    return len(one & other) / len(every) if every else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldUse:
    """The resources that the replicas of one world used."""

    epoch: int
    nodes: int
    replicas: int
    #: mCPU of the busiest replica over time.
    cpu: CpuUsage = CpuUsage()
    #: Highest resident memory of a replica, over all and in each of its last hours, in bytes.
    memory_bytes: float = 0.0
    hourly_bytes: tuple[float, ...] = ()
    #: The same in each of its last minutes, and in each of its last ten-minute intervals.
    minutely_bytes: tuple[float, ...] = ()
    ten_minutely_bytes: tuple[float, ...] = ()
    #: Time of the newest of these maxima; 0 before the first.
    read_at_seconds: float = 0.0
    #: Mean bytes per second through a node's network cards, without loopback.
    sent_bytes_per_second: float = 0.0
    received_bytes_per_second: float = 0.0
    #: Highest use of an accelerator's memory, and its capacity; None without an accelerator.
    device_bytes: float | None = None
    device_total_bytes: float | None = None
    #: Seconds of the steps of all workers, and those of them spent waiting for data.
    stepped_seconds: float = 0.0
    waited_seconds: float = 0.0
    #: Readings of machines on which the use rests.
    readings: int = 0
    #: Mean share of time in which processes waited for storage, and the readings that had one.
    io_stalled_share: float = 0.0
    io_readings: int = 0

    @property
    def wait_share(self) -> float:
        """Return the share of step time spent waiting for data; 0 if no step was measured."""
        return self.waited_seconds / self.stepped_seconds if self.stepped_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The record of a job that has ended, or still runs."""

    job: JobId
    name: str
    script: Script
    succeeded: bool
    #: True if the job failed; its use may be the reason.
    failed: bool = False
    #: True if its memory leaked, so that its use exceeds the need.
    leaked: bool = False
    #: One point per measured world, oldest first.
    points: tuple[Point, ...] = ()
    uses: tuple[WorldUse, ...] = ()
    #: mCPU that each replica reserved.
    reserved_millis: float = 0.0
    #: Bytes of the newest checkpoint.
    checkpoint_bytes: float | None = None
    #: Total steps of a job that ended well, and the epochs that it declared.
    steps: float | None = None
    epochs: int | None = None

    @property
    def measured(self) -> bool:
        """Return True if at least one world was measured."""
        return bool(self.points or self.uses)

    def use(self, point: Point) -> WorldUse | None:
        """Return the resources that the replicas of a point's world used; None if unknown."""
        return next((use for use in self.uses if use.epoch == point.epoch), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A measured job, and its likeness to the job that the estimate is for."""

    past: Past
    likeness: float
    same: str
    #: True if the job's options give the batch that is asked about.
    same_batch: bool = True

    @property
    def alike(self) -> bool:
        """Return True if the job is similar enough for its measurements to be used."""
        return self.likeness > ALIKE


def nearest(subject: Script, pasts: Sequence[Past]) -> list[Neighbour]:
    """Return the ten most similar measured jobs; of equally similar jobs the newest come first.

    Args:
        subject: The script of the job that the estimate is for.
        pasts: Records of jobs, newest first.
    """
    found = []
    for past in pasts:
        how, same = likeness(subject, past.script)
        if how > 0 and past.measured:
            batch = subject.batches == past.script.batches
            found.append(Neighbour(past=past, likeness=how, same=same, same_batch=batch))
    return sorted(found, key=lambda one: -one.likeness)[:MOST]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """How many replicas of the job fit one node, the empty pool, and the pool now, on one kind of
    accelerator.
    """

    accelerator: str
    #: Replicas that fit one node, the empty pool, and the pool now.
    per_node: int
    largest: int
    now: int
