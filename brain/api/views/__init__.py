"""The views that the API returns, built from the stores; this package only reads."""

from brain.api.views.conditions import memory
from brain.api.views.fleet import nodes, plans, pool, series
from brain.api.views.jobs import detail, document, job, jobs, wishes, workers
from brain.api.views.models import model, models
from brain.api.views.sparklines import Sparklines

__all__ = [
    "Sparklines",
    "detail",
    "document",
    "job",
    "jobs",
    "memory",
    "model",
    "models",
    "nodes",
    "plans",
    "pool",
    "series",
    "wishes",
    "workers",
]
