"""Roles of a job's replicas, and ``TF_CONFIG``, by which TensorFlow's processes find each other.

Roles are ``chief``, ``worker``, ``ps`` and ``evaluator``. An evaluator reads the checkpoints of the
other processes. The field ``cluster`` never lists an evaluator; only the field ``task`` of its own
``TF_CONFIG`` names it.

Any other name is a *group*: workers with their own number of processes and amounts. A replica
belongs to its group from its start, but gets its role from its rank.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from brain.errors import BadInput
from brain.types.resources import Resources

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
#: Roles of the cluster, in the order of ``TF_CONFIG``.
CLUSTER = (CHIEF, WORKER, PS)
#: Roles with at most one replica.
SINGLE = (CHIEF, EVALUATOR)
#: Roles other than the workers', in the order of their ranks.
NAMED = (CHIEF, PS, EVALUATOR)
#: Pattern of the names of groups, which appear in labels of a cluster.
GROUP_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSize:
    """The number of replicas of a role or group, and the processes and resources of each."""

    replicas: int = 1
    #: Processes of each replica of a group; None in a role, whose replicas have one.
    processes_per_replica: int | None = None
    #: Amounts of each replica of the role; None: those of every replica of the job.
    resources: Resources | None = None
    #: Product name of the accelerators of each replica of a group; None: that of the job.
    accelerator: str | None = None


#: The roles of a job except ``worker``, in the order of their ranks, then its groups by name; all
#: other replicas are workers.
Roles = tuple[tuple[str, RoleSize], ...]


def is_group(name: str) -> bool:
    """Return True for the name of a group.

    >>> is_group("large"), is_group("ps"), is_group("worker")
    (True, False, False)
    """
    return name not in (WORKER, *NAMED)


def check_roles(roles: Mapping[str, RoleSize], *, gpus: int) -> None:
    """Raise BadInput for roles with which parameter-server training cannot begin.

    Raises:
        BadInput: the roles cannot be used; the message names field, value and remedy.
    """
    for name, size in roles.items():
        if name not in NAMED:
            raise BadInput(
                f"roles.{name} is not a role; choose one of {', '.join(NAMED)}; all other "
                "replicas are workers",
                field=f"roles.{name}",
            )
        if size.replicas < 1 or (name in SINGLE and size.replicas > 1):
            most = "exactly 1" if name in SINGLE else "at least 1"
            raise BadInput(
                f"roles.{name}.replicas {size.replicas} must be {most}; correct it, "
                "or leave the role out",
                field=f"roles.{name}.replicas",
            )
        if size.processes_per_replica is not None:
            raise BadInput(
                f"roles.{name}.processesPerReplica {size.processes_per_replica} has no effect, "
                "because a replica of a role is one process; leave it out",
                field=f"roles.{name}.processesPerReplica",
            )
        if size.accelerator is not None:
            raise BadInput(
                f"roles.{name}.accelerator {size.accelerator} has no effect, because roles differ "
                "in CPU and memory only; leave it out, and set accelerator for the job",
                field=f"roles.{name}.accelerator",
            )
        if size.resources is None:
            continue
        check_resources(size.resources, f"roles.{name}.resources")
        if size.resources.gpus != gpus:
            raise BadInput(
                f"roles.{name}.resources.gpus {size.resources.gpus} differs from resources.gpus "
                f"{gpus}, but roles may differ in CPU and memory only; leave it out",
                field=f"roles.{name}.resources.gpus",
            )
    if PS not in roles:
        raise BadInput(
            "roles.ps is missing, but without parameter servers no parameters can be shared; "
            "add ps, or leave roles out",
            field="roles.ps",
        )


def check_groups(groups: Mapping[str, RoleSize]) -> None:
    """Raise BadInput for groups whose replicas cannot be started.

    Raises:
        BadInput: the groups cannot be used; the message names field, value and remedy.
    """
    for name, size in groups.items():
        field = f"groups.{name}"
        if not is_group(name):
            raise BadInput(
                f"{field} has the name of a role; rename the group, for example to 'large'",
                field=field,
            )
        if not re.fullmatch(GROUP_NAME, name):
            raise BadInput(
                f"{field} is not a name for a group; give up to 63 lower-case letters, digits and "
                "`-`, and begin and end with a letter or digit",
                field=field,
            )
        if size.replicas < 1:
            raise BadInput(
                f"{field}.replicas {size.replicas} must be at least 1; "
                "correct it, or leave the group out",
                field=f"{field}.replicas",
            )
        if size.processes_per_replica is None:
            raise BadInput(
                f"{field}.processesPerReplica is missing; give the number of processes that each "
                "replica of the group starts, for example 8",
                field=f"{field}.processesPerReplica",
            )
        if size.processes_per_replica < 1:
            raise BadInput(
                f"{field}.processesPerReplica {size.processes_per_replica} must be at least 1",
                field=f"{field}.processesPerReplica",
            )
        if size.resources is not None:
            check_resources(size.resources, f"{field}.resources")


def check_resources(asked: Resources, field: str) -> None:
    """Raise BadInput for negative amounts in a document.

    Raises:
        BadInput: the message names the amount in ``field``.
    """
    for name, amount in (
        ("cpuMillis", asked.cpu_millis),
        ("memoryBytes", asked.memory_bytes),
        ("gpus", asked.gpus),
    ):
        if amount < 0:
            raise BadInput(
                f"{field}.{name} {amount} is negative; give 0 or more",
                field=f"{field}.{name}",
            )


class _Placed(Protocol):
    @property
    def role(self) -> str: ...


_Member = TypeVar("_Member", bound=_Placed)


def ordered(roles: Mapping[str, RoleSize]) -> Roles:
    """Return the roles in the order of their ranks, then the groups in alphabetical order.

    >>> [name for name, _ in ordered({"b": RoleSize(), "ps": RoleSize(), "a": RoleSize()})]
    ['ps', 'a', 'b']
    """
    names = (*(name for name in NAMED if name in roles), *sorted(filter(is_group, roles)))
    return tuple((name, roles[name]) for name in names)


def ranked(roles: Roles) -> Roles:
    """Return the roles that are assigned by rank: all except the groups."""
    return tuple((name, size) for name, size in roles if not is_group(name))


def others(roles: Roles) -> int:
    """Return the number of replicas in roles other than ``worker``."""
    return sum(size.replicas for _, size in roles)


def role_at(rank: int, roles: Roles) -> str:
    """Return the role of a rank in a job without groups. Rank 0 always trains, because its steps
    and saves represent the world.

    >>> [role_at(rank, (("chief", RoleSize()), ("ps", RoleSize(replicas=2)))) for rank in range(4)]
    ['chief', 'ps', 'ps', 'worker']
    >>> [role_at(rank, (("ps", RoleSize(replicas=2)),)) for rank in range(4)]
    ['worker', 'ps', 'ps', 'worker']
    """
    trains: Roles = () if CHIEF in dict(roles) else ((WORKER, RoleSize()),)
    for name, size in (*trains, *roles):
        if rank < size.replicas:
            return name
        rank -= size.replicas
    return WORKER


def roles_in(members: Iterable[_Placed]) -> Roles:
    """Return the number of members of each role other than ``worker`` and of each group, in the
    order of ``ordered``.
    """
    found = Counter(each.role for each in members if each.role != WORKER)
    return ordered({role: RoleSize(replicas=count) for role, count in found.items()})


def groups_of(roles: Roles) -> Roles:
    return tuple((name, size) for name, size in roles if is_group(name))


def alike(one: Roles, other: Roles) -> bool:
    """Return True if ``one`` and ``other`` have the same number of replicas in each role; their
    amounts may differ.
    """
    return [(role, size.replicas) for role, size in one] == [
        (role, size.replicas) for role, size in other
    ]


def leading(members: Iterable[_Member]) -> list[_Member]:
    """Return the members that decide when the job ends: the chief, or without a chief all workers,
    in groups and outside.
    """
    found = list(members)
    chiefs = [each for each in found if each.role == CHIEF]
    return chiefs or [each for each in found if each.role not in NAMED]


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One process, given by its role and its rank within the role."""

    role: str
    rank: int


def tasks_of(members: Sequence[_Placed]) -> tuple[Task, ...]:
    seen: dict[str, int] = {}
    found = []
    for each in members:
        found.append(Task(each.role, seen.get(each.role, 0)))
        seen[each.role] = seen.get(each.role, 0) + 1
    return tuple(found)


def tf_config(
    members: Mapping[Task, str], task: Task, *, spare: Mapping[Task, str] | None = None
) -> str:
    """Return the ``TF_CONFIG`` of ``task``, as JSON.

    Args:
        members: All processes and their addresses.
        spare: Addresses of workers that may still be added. If given, workers come and go without
            restarts. The config of a worker then names no other worker, because the worker would
            wait for every worker that its config names. The config of a parameter server names all
            possible workers, because the server answers only workers that its config names. This
            suits between-graph replication, in which workers train by themselves. The config of a
            coordinating chief names the present workers.

    Raises:
        BadInput: ``task`` is not one of the members.

    >>> tf_config({Task("ps", 0): "p:1", Task("worker", 0): "w:1"}, Task("worker", 0))
    '{"cluster": {"worker": ["w:1"], "ps": ["p:1"]}, "task": {"type": "worker", "index": 0}}'
    """
    if task not in members:
        known = ", ".join(f"{each.role} {each.rank}" for each in sorted(members))
        raise BadInput(f"{task.role} {task.rank} is not a member; members: {known}", field="role")
    told = dict(members) | (dict(spare or {}) if task.role == PS else {})
    cluster: dict[str, list[str] | dict[str, str]] = {}
    for role in CLUSTER:
        ranks = sorted(each for each in told if each.role == role)
        if spare is not None and role == WORKER == task.role:
            cluster[role] = {str(task.rank): members[task]}
        elif ranks:
            cluster[role] = [told[each] for each in ranks]
    said = {"cluster": cluster, "task": {"type": task.role, "index": task.rank}}
    return json.dumps(said)
