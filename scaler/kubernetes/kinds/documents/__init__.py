"""Maps an ElasticJob to a job document and back, and reads pod templates and their commands."""

from scaler.kubernetes.kinds.documents.building import (
    elastic_job,
    environment_of,
    environment_secret,
)
from scaler.kubernetes.kinds.documents.commands import Launch, LaunchKind, launch_of
from scaler.kubernetes.kinds.documents.mapping import (
    bounds,
    clip_groups,
    job_document,
    plan_unserved,
    processes,
    running_sizes,
    unit_of,
    unserved,
)
from scaler.kubernetes.kinds.documents.templates import (
    command_of,
    launch_in,
    main_container,
    reserved,
    spec_of,
)

__all__ = [
    "Launch",
    "LaunchKind",
    "bounds",
    "clip_groups",
    "command_of",
    "elastic_job",
    "environment_of",
    "environment_secret",
    "job_document",
    "launch_in",
    "launch_of",
    "main_container",
    "plan_unserved",
    "processes",
    "reserved",
    "running_sizes",
    "spec_of",
    "unit_of",
    "unserved",
]
