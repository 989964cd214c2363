"""Answers a request for an estimate: computes the needs of a job at each size from its document and
the requester's questions.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from brain.errors import BadInput
from brain.estimates.history import pasts, rooms
from brain.models.estimate import PriceList, estimate
from brain.models.estimate.past import script_of
from brain.ports import Transaction
from brain.settings import Settings, prices_of
from brain.types.estimate import Estimate, EstimateQuestion
from brain.types.job import JobDocument
from brain.types.resources import PoolName


def ask(
    tx: Transaction,
    document: JobDocument,
    question: EstimateQuestion,
    *,
    owner: str,
    pool: PoolName,
    settings: Settings,
    now: datetime,
) -> Estimate:
    """Return the estimated needs of a job that is not submitted yet; nothing is stored.

    Raises:
        BadInput: the question has impossible fields, or the document has groups; the message names
            the field.
    """
    if document.groups:
        raise BadInput(
            f"groups ({', '.join(document.groups)}) cannot be estimated, because no model predicts "
            "replicas that differ; leave groups out to estimate the other replicas alone",
            field="groups",
        )
    return estimate(
        document,
        limited(document, question, now),
        pasts(tx, script_of(document, owner)),
        rooms(tx, document, pool, now),
        market_of(settings, question.prices),
        owner=owner,
    )


def limited(document: JobDocument, question: EstimateQuestion, now: datetime) -> EstimateQuestion:
    """Return the question; if it gives no deadline or no budget, those of the document are used."""
    budget, deadline = document.budget, document.deadline
    left = None if deadline is None else max(1.0, (deadline - now).total_seconds())
    of_document: dict[str, Any] = {
        "deadline_seconds": left,
        "budget": budget.cost,
        "accelerator_hours": budget.accelerator_hours,
    }
    unsaid = {k: limit for k, limit in of_document.items() if getattr(question, k) is None}
    return replace(question, **unsaid)


def market_of(settings: Settings, over: Mapping[str, float]) -> PriceList:
    """Return the prices from the settings; a price in ``over`` replaces the one in the settings."""
    return PriceList(
        prices=prices_of(settings.accelerator_prices) | dict(over), currency=settings.currency
    )
