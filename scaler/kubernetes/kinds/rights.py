"""Rights of the operator in a cluster, with reasons: the source of RBAC, reference and doctor.

No right here lets the operator run commands in pods, change roles, or list secrets.
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
        why="says what became of jobs and plans",
    ),
    Right(
        group=GROUP,
        resources=("scaleplans",),
        verbs=(*_READ, "create", "patch", "delete"),
        why="shows Brain's plans as objects, answers people's, collects finished ones",
    ),
    Right(
        group="",
        resources=("pods",),
        verbs=(*_READ, "create", "patch", "delete"),
        why="makes replicas and ends them; `patch` opens gates and tells where others are",
    ),
    Right(
        group="",
        resources=("pods/resize",),
        verbs=("patch",),
        why="changes in place what running replicas reserve",
    ),
    Right(
        group="",
        resources=("limitranges", "resourcequotas"),
        verbs=("list",),
        why="sees before it changes amounts what the namespace allows",
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
        why="keeps a drain from ending replicas before others run",
    ),
    Right(
        group="",
        resources=("services",),
        verbs=("get", "create", "patch"),
        why="gives the coordinator and parameter servers names",
    ),
    Right(
        group="",
        resources=("secrets",),
        verbs=("get", "create", "patch"),
        why="gives each job's agents their token, and a submitted job its environment; never lists",
    ),
    Right(
        group="",
        resources=("events",),
        verbs=("create", "patch"),
        why="tells what happened where `kubectl describe` shows it",
    ),
    Right(
        group="scheduling.volcano.sh",
        resources=("podgroups",),
        verbs=("get", "list", "create", "patch"),
        why="gangs of jobs with `BatchScheduler: volcano`",
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
        why="gives the quota back of jobs that ended or were evicted",
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
        why="reads and sets how many pods the Job of such a JobSet has",
    ),
    Right(
        group="autoscaling",
        resources=("horizontalpodautoscalers",),
        verbs=_READ,
        why="keeps out of the way of an autoscaler on the same job",
    ),
    Right(
        group="autoscaling.k8s.io",
        resources=("verticalpodautoscalers",),
        verbs=_READ,
        why="changes no amounts where a VerticalPodAutoscaler does",
    ),
    Right(
        group="metrics.k8s.io",
        resources=("pods",),
        verbs=("get", "list"),
        why="usage of pods into which no probe is injected",
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "list"),
        why="refuses to start beside DLRover's own controller",
    ),
    Right(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "list", "create", "patch", "update"),
        scope=Scope.OWN,
        why="one of several operators leads",
    ),
    Right(
        group="",
        resources=("pods",),
        verbs=("get",),
        scope=Scope.OWN,
        why="reads from its own pod which image to copy into jobs",
    ),
    Right(
        group="",
        resources=("nodes",),
        verbs=_READ,
        scope=Scope.CLUSTER,
        why="knows what could fit, ranks by topology, sees lost nodes",
    ),
    Right(
        group="metrics.k8s.io",
        resources=("nodes",),
        verbs=("get", "list"),
        scope=Scope.CLUSTER,
        why="usage of nodes",
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
        why="sees whether stored objects use fields that an older schema would drop",
    ),
)
