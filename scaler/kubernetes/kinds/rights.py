"""Permissions of the operator in a cluster, with reasons: the source of the roles, the reference
and the doctor.

No permission lets the operator run commands in pods, change roles, or list Secrets.
"""

from dataclasses import dataclass
from enum import StrEnum

from scaler.kubernetes.kinds.fields import GROUP

_READ = ("get", "list", "watch")


class Scope(StrEnum):
    #: In every namespace whose jobs are served.
    JOBS = "jobs"
    #: In the namespace that the operator itself runs in.
    OWN = "own"
    #: On objects without a namespace.
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    scope: Scope = Scope.JOBS
    #: The function that stops working without the right.
    why: str


RIGHTS: tuple[Right, ...] = (
    Right(
        group=GROUP,
        resources=("elasticjobs",),
        verbs=(*_READ, "create", "delete"),
        why="reads jobs; creates those submitted to Brain, where `--submit-to` allows it; deletes "
        "finished ones whose time to live is over",
    ),
    Right(
        group=GROUP,
        resources=("elasticjobs/status", "scaleplans/status"),
        verbs=("get", "patch"),
        why="writes the status of jobs and plans",
    ),
    Right(
        group=GROUP,
        resources=("scaleplans",),
        verbs=(*_READ, "create", "patch", "delete"),
        why=(
            "creates an object for each of Brain's plans, answers those that people create, and "
            "deletes finished ones"
        ),
    ),
    Right(
        group="",
        resources=("pods",),
        verbs=(*_READ, "create", "patch", "delete"),
        why=(
            "creates and deletes the pods of replicas; `patch` removes scheduling gates and gives "
            "pods the addresses of other pods"
        ),
    ),
    Right(
        group="",
        resources=("pods/resize",),
        verbs=("patch",),
        why="changes the reservations of running replicas in place",
    ),
    Right(
        group="",
        resources=("limitranges", "resourcequotas"),
        verbs=("list",),
        why="checks what the namespace allows before it changes a replica's amounts",
    ),
    Right(
        group="",
        resources=("pods/log",),
        verbs=("get",),
        why="reads the output of jobs for `brain logs`",
    ),
    Right(
        group="",
        resources=("pods/eviction",),
        verbs=("create",),
        why="moves replicas within disruption budgets",
    ),
    Right(
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=("get", "create", "patch"),
        why="keeps a drain from ending replicas before their replacements run",
    ),
    Right(
        group="",
        resources=("services",),
        verbs=("get", "create", "patch"),
        why="gives the coordinator and the parameter servers stable DNS names",
    ),
    Right(
        group="",
        resources=("secrets",),
        verbs=("get", "create", "patch"),
        why=(
            "gives each job's agents their token, and each submitted job its environment; the "
            "operator never lists Secrets"
        ),
    ),
    Right(
        group="",
        resources=("events",),
        verbs=("create", "patch"),
        why="writes Events, which `kubectl describe` shows",
    ),
    Right(
        group="scheduling.volcano.sh",
        resources=("podgroups",),
        verbs=("get", "list", "create", "patch"),
        why="creates the PodGroups of jobs with `BatchScheduler: volcano`",
    ),
    Right(
        group="kueue.x-k8s.io",
        resources=("workloads",),
        verbs=(*_READ, "create", "delete"),
        why="asks Kueue for the quota of jobs in its queues",
    ),
    Right(
        group="kueue.x-k8s.io",
        resources=("workloads/status",),
        verbs=("get", "patch"),
        why="returns the quota of jobs that ended or were evicted",
    ),
    Right(
        group="kubeflow.org",
        resources=("pytorchjobs",),
        verbs=(*_READ, "patch"),
        why="advises on PyTorchJobs; `patch` suspends those that their owners let Brain resize",
    ),
    Right(
        group="kubeflow.org",
        resources=("pytorchjobs/scale",),
        verbs=("get", "patch", "update"),
        why="resizes PyTorchJobs that allow it",
    ),
    Right(
        group="jobset.x-k8s.io",
        resources=("jobsets",),
        verbs=(*_READ, "patch"),
        why="advises on JobSets; `patch` resizes and suspends those that their owners let Brain "
        "resize",
    ),
    Right(
        group="batch",
        resources=("jobs",),
        verbs=(*_READ, "patch"),
        why="reads and sets the number of pods in the Jobs of JobSets that Brain may resize",
    ),
    Right(
        group="autoscaling",
        resources=("horizontalpodautoscalers",),
        verbs=_READ,
        why="detects a HorizontalPodAutoscaler of the same job, and then only advises",
    ),
    Right(
        group="autoscaling.k8s.io",
        resources=("verticalpodautoscalers",),
        verbs=_READ,
        why="detects a VerticalPodAutoscaler of the same job, and then changes no amounts",
    ),
    Right(
        group="metrics.k8s.io",
        resources=("pods",),
        verbs=("get", "list"),
        why="reads the usage of pods into which no probe is injected",
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "list"),
        why=(
            "detects DLRover's own controller, because the operator refuses to start while that "
            "controller runs"
        ),
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "list", "create", "patch", "update"),
        scope=Scope.OWN,
        why="elects the one leader among several operators",
    ),
    Right(
        group="",
        resources=("pods",),
        verbs=("get",),
        scope=Scope.OWN,
        why="reads from its own pod the image that it copies into jobs",
    ),
    Right(
        group="",
        resources=("nodes",),
        verbs=_READ,
        scope=Scope.CLUSTER,
        why="reads the capacity and topology of nodes, and detects lost nodes",
    ),
    Right(
        group="metrics.k8s.io",
        resources=("nodes",),
        verbs=("get", "list"),
        scope=Scope.CLUSTER,
        why="reads the usage of nodes",
    ),
)

#: Rights that the person who runs `brain migrate --crds` needs, once.
INSTALL_RIGHTS: tuple[Right, ...] = (
    Right(
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get", "create", "patch"),
        scope=Scope.CLUSTER,
        why="applies the kinds",
    ),
    Right(
        group=GROUP,
        resources=("elasticjobs", "scaleplans"),
        verbs=("list",),
        scope=Scope.CLUSTER,
        why="checks whether stored objects use fields that an older schema would drop",
    ),
)
