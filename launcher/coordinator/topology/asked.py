"""Reads and checks --world, --parallel, --node_unit and --topology."""

import re

from brain.errors import BadInput
from launcher.coordinator.topology.parallel import unit_of
from launcher.values.observation import Shape

#: Zone, spine, rack, switch.
_LEVELS = 4


def path_of(said: str) -> tuple[str, ...]:
    """Parse ``--topology``: names of branches, outermost first, at most four levels.

    >>> path_of("eu-1/spine2/rack7/sw3"), path_of("")
    (('eu-1', 'spine2', 'rack7', 'sw3'), ())

    Raises:
        BadInput: a name is empty, or there are too many.
    """
    path = tuple(name.strip() for name in said.split("/")) if said.strip() else ()
    if not all(path) or len(path) > _LEVELS:
        raise BadInput(
            f"--topology={said} must be up to {_LEVELS} names separated by /, outermost first; "
            "give zone/spine/rack/switch, or rack/switch if that is all you know",
            field="topology",
        )
    return path


def shape_of(said: str) -> Shape | None:
    """Parse ``--world``: the desired, the smallest and the largest number of processes.

    >>> shape_of("8:4:16"), shape_of("")
    (Shape(processes=8, least=4, most=16), None)

    Raises:
        BadInput: the text is not DESIRED[:MIN[:MAX]] with MIN <= DESIRED <= MAX.
    """
    if not said:
        return None
    found = re.fullmatch(r"(\d+)(?::(\d+))?(?::(\d+))?", said)
    desired = int(found[1]) if found else 0
    least = int(found[2] or desired) if found else 0
    most = int(found[3] or desired) if found else 0
    if not 0 < least <= desired <= most:
        raise BadInput(
            f"--world={said} is not DESIRED[:MIN[:MAX]] with 1 <= MIN <= DESIRED <= MAX; give the "
            "number of processes, for example 8 or 8:4:16",
            field="world",
        )
    return Shape(processes=desired, least=least, most=most)


def parallel_of(said: str) -> tuple[int, int]:
    """Parse ``--parallel``: ranks of a tensor-parallel group, and pipeline stages.

    >>> parallel_of("8x4"), parallel_of("8"), parallel_of("")
    ((8, 4), (8, 1), (1, 1))

    Raises:
        BadInput: the text is not TENSOR[xPIPELINE].
    """
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", said or "1")
    tensor, pipeline = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
    if tensor < 1 or pipeline < 1:
        raise BadInput(
            f"--parallel={said} is not TENSORxPIPELINE; give 8x4 for tensor groups of 8 ranks in "
            "4 stages",
            field="parallel",
        )
    return tensor, pipeline


def nodes_asked(shape: Shape, nnodes: str, unit: int, processes: int, alone: bool) -> int:
    """Return the largest number of agents for a job that requests processes.

    ``alone``: there is no endpoint at which other agents could join.

    Raises:
        BadInput: the flags contradict one another, or this agent runs alone and its number of
            processes is not allowed.
    """
    if nnodes not in ("1", "1:1"):
        raise BadInput(
            f"--nnodes={nnodes} counts machines, but --world counts processes; give only one of "
            "the two",
            field="world",
        )
    if unit != 1:
        raise BadInput(
            f"--node_unit={unit} counts machines, but --world counts processes; give --node_unit "
            "with --nnodes, or leave it out",
            field="node_unit",
        )
    if not alone:
        return shape.most
    if not shape.least <= processes <= shape.most:
        raise BadInput(
            f"--world={shape.processes}: this machine alone starts {processes} processes; give "
            f"--nproc-per-node={shape.processes}, or --rdzv-backend=c10d with the "
            "--rdzv-endpoint where other agents join",
            field="world",
        )
    return 1


def unit_asked(unit: int, parallel: tuple[int, int], processes: int) -> int:
    """Return the given unit; by default, the number of replicas that together hold whole copies
    of the network.

    Raises:
        BadInput: replicas of the given unit do not hold whole copies of the network.
    """
    whole = unit_of(*parallel, processes)
    if unit == 1:
        return whole
    if unit % whole:
        raise BadInput(
            f"--node_unit={unit} with {processes} processes per node does not make whole copies "
            f"of --parallel={parallel[0]}x{parallel[1]}; give a multiple of {whole}",
            field="node_unit",
        )
    return unit
