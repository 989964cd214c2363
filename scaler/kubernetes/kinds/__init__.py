"""The kinds ElasticJob and ScalePlan, from which schema, roles and reference are generated.

``python -m scaler.kubernetes.kinds`` writes everything under ``deploy/`` and ``docs/reference/``
that is derived from the kinds. Only ``upgrade`` accesses a cluster.
"""

from scaler.kubernetes.kinds.conditions import JobCondition, PlanCondition, Reason
from scaler.kubernetes.kinds.declared import ParallelismSpec
from scaler.kubernetes.kinds.elasticjob import (
    DLROVER,
    OURS,
    BatchScheduler,
    ElasticJob,
    ElasticJobSpec,
    GroupSpec,
    ReplicaSpec,
    ReplicaType,
    RestartPolicy,
    Strategy,
)
from scaler.kubernetes.kinds.fields import API_VERSION, GROUP, VERSION
from scaler.kubernetes.kinds.jobstatus import (
    ElasticJobCondition,
    ElasticJobStatus,
    GroupStatus,
    Request,
    RoleStatus,
)
from scaler.kubernetes.kinds.scaleplan import (
    JOB_LABEL,
    ApprovalSpec,
    PodMeta,
    ReplicaResource,
    ScalePlan,
    ScalePlanSpec,
    ScalePlanStatus,
    Target,
    Throughput,
)

__all__ = [
    "API_VERSION",
    "DLROVER",
    "GROUP",
    "JOB_LABEL",
    "OURS",
    "VERSION",
    "ApprovalSpec",
    "BatchScheduler",
    "ElasticJob",
    "ElasticJobCondition",
    "ElasticJobSpec",
    "ElasticJobStatus",
    "GroupSpec",
    "GroupStatus",
    "JobCondition",
    "ParallelismSpec",
    "PlanCondition",
    "PodMeta",
    "Reason",
    "ReplicaResource",
    "ReplicaSpec",
    "ReplicaType",
    "Request",
    "RestartPolicy",
    "RoleStatus",
    "ScalePlan",
    "ScalePlanSpec",
    "ScalePlanStatus",
    "Strategy",
    "Target",
    "Throughput",
]
