"""What the API answers with: the shapes that UI, CLI and SDK share.

Words, like ``brain.types``: standard library only, so that the client can parse answers beside
a job. ``brain.api`` builds these from the stores; the OpenAPI document describes them.
"""

from brain.views.cluster import NodeLeft, NodeView, PoolView, Series, SeriesPoint, WorkerView
from brain.views.exchange import (
    DryRun,
    EstimateRequest,
    Health,
    JobEdit,
    NewToken,
    Page,
    PlanDecision,
    Problem,
    ResizeRequest,
    SignInCode,
    TokenView,
)
from brain.views.jobs import (
    Condition,
    DesiredJob,
    DesiredPool,
    JobDetail,
    JobView,
    MemoryView,
    PlanView,
    Scaling,
    WhatIf,
)
from brain.views.models import (
    BestBatch,
    Calibrated,
    Fit,
    FreeTrial,
    Kept,
    ModelsView,
    ModelView,
    Noise,
    ToldBatch,
)
from brain.views.relay import (
    LogsRequest,
    RelayedError,
    ScalerAnswer,
    ScalerRequest,
    SubmitRequest,
)

__all__ = [
    "BestBatch",
    "Calibrated",
    "Condition",
    "DesiredJob",
    "DesiredPool",
    "DryRun",
    "EstimateRequest",
    "Fit",
    "FreeTrial",
    "Health",
    "JobDetail",
    "JobEdit",
    "JobView",
    "Kept",
    "LogsRequest",
    "MemoryView",
    "ModelView",
    "ModelsView",
    "NewToken",
    "NodeLeft",
    "NodeView",
    "Noise",
    "Page",
    "PlanDecision",
    "PlanView",
    "PoolView",
    "Problem",
    "RelayedError",
    "ResizeRequest",
    "ScalerAnswer",
    "ScalerRequest",
    "Scaling",
    "Series",
    "SeriesPoint",
    "SignInCode",
    "SubmitRequest",
    "TokenView",
    "ToldBatch",
    "WhatIf",
    "WorkerView",
]
