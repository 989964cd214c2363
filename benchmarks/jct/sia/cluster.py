"""The cluster of Sia's evaluation: 6 x 4 T4, 2 x 8 A100 and 3 x 8 RTX 2080 Ti."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.jct.applications import NAMES, Application, application
from brain.errors import BadInput

#: Seconds that each application holds its accelerators without working after a start or a change.
RESTART_SECONDS = {
    "bert": 120.0,
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "imagenet": 250.0,
    "ncf": 15.0,
    "yolov3": 80.0,
}
#: How much slower each runs than the tables say (the artifact's calibration on real machines).
SLOWDOWN = {
    "bert": 1.2,
    "cifar10": 1.8,
    "deepspeech2": 1.2,
    "imagenet": 1.2,
    "ncf": 1.5,
    "yolov3": 1.2,
}
#: The artifact's own: larger local batches of this application do not fit this kind.
_LARGEST_LOCAL = {("deepspeech2", "rtx"): 57}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of node."""

    name: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """Return the number of accelerators of this kind."""
        return self.nodes * self.gpus_per_node

    def packed(self, gpus: int) -> tuple[int, ...]:
        """Return the GPUs per node on as few nodes as possible.

        >>> Kind(name="aws", nodes=6, gpus_per_node=4).packed(6)
        (4, 2)
        """
        whole, rest = divmod(gpus, self.gpus_per_node)
        return (self.gpus_per_node,) * whole + ((rest,) if rest else ())


HETEROGENEOUS = (
    Kind(name="aws", nodes=6, gpus_per_node=4),
    Kind(name="dgx-ext", nodes=2, gpus_per_node=8),
    Kind(name="rtx", nodes=3, gpus_per_node=8),
)

#: Kinds as ``measured.csv`` writes them, and as the tables do.
_MODELS = {"T4": "aws", "V100": "azure", "A100": "dgx-ext", "2080Ti": "rtx", "RTX6000": "quad"}


def cluster(text: str) -> tuple[Kind, ...]:
    """Return the kinds of a cluster like ``6xT4x4+2xA100x8``: nodes, model or table, GPUs per node.

    >>> [(kind.name, kind.gpus) for kind in cluster("6xT4x4+2xA100x8")]
    [('aws', 24), ('dgx-ext', 16)]
    """
    found = []
    for part in text.split("+"):
        match = re.fullmatch(r"(\d+)x(.+)x(\d+)", part)
        if match is None:
            raise BadInput(f"cluster {part!r} is none; write nodes, model and GPUs, as 6xT4x4")
        nodes, model, gpus = match.groups()
        name = _MODELS.get(model, model)
        found.append(Kind(name=name, nodes=int(nodes), gpus_per_node=int(gpus)))
    return tuple(found)


#: Of an application by kind of node.
Tables = Mapping[str, Application]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One row of a workload."""

    name: str
    application: str
    seconds: float
    #: The batch that its owner would train with; Sia believes no larger one to be allowed.
    batch: int
    #: Epochs that it trains for, in usual ones.
    length: float = 1.0


@lru_cache
def tables(data: Path, kinds: tuple[Kind, ...] = HETEROGENEOUS) -> dict[str, Tables]:
    """Return every application's tables under ``data/traces``, by application and kind."""
    return {name: _tables(data / "traces" / name, kinds) for name in NAMES}


def _tables(folder: Path, kinds: tuple[Kind, ...]) -> Tables:
    found = {}
    for kind in kinds:
        one = application(folder, kind.name)
        one.largest_local = _LARGEST_LOCAL.get((folder.name, kind.name), one.largest_local)
        found[kind.name] = one
    return found


def workload(file: Path) -> list[Arrival]:
    """Return the arrivals in the order of the file.

    Raises:
        BadInput: a job asks for a fixed size, which is not simulated here.
    """
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        if row.get("category"):
            raise BadInput(
                f"{row['name']} of {file} is {row['category']}; only adaptive jobs are simulated, "
                "take a workload without the column category"
            )
        if row["application"] not in NAMES:
            raise BadInput(
                f"{row['name']} of {file} runs {row['application']}, which has no tables; "
                f"applications are {', '.join(NAMES)}"
            )
    return [
        Arrival(
            name=row["name"],
            application=row["application"],
            seconds=float(row["time"]),
            batch=int(row["batch_size"]),
        )
        for row in rows
    ]
