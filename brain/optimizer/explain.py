"""Adds evidence, alternatives and the next step to a choice, so that a person can judge it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from brain.errors import Undetermined
from brain.models.fitting import Z90, Point
from brain.models.resources.servers import ParameterServer, hot_server
from brain.models.sizes import Size
from brain.optimizer.batches import wish_at
from brain.optimizer.policies import SINGLE_JOB
from brain.optimizer.situation import Choice, Policy, Situation, chance
from brain.optimizer.worth import worth
from brain.types.batch import BatchWish
from brain.types.explanation import Alternative, Evidence, Explanation
from brain.types.job import PolicyMode
from brain.types.recommendation import Prediction, Recommendation
from brain.typeset import change, count, duration, number, percent

#: Number of other sizes in an explanation, the nearest to the present one: decisions are stored
#: every turn.
_SHOWN = 100


def recommend(
    situation: Situation, policy: Policy = SINGLE_JOB, *, at: Size | None = None
) -> Recommendation:
    """Let ``policy`` decide about one job, and explain the decision.

    Callers that have also chosen the nodes give the size with these nodes as ``at``.
    """
    choice = policy.choose(situation)
    promised = _promise(situation, choice.replicas)
    moves = choice.replicas != situation.replicas
    size = at or Size(replicas=choice.replicas)
    wish = wish_at(situation.model, size) if moves or at else None
    return Recommendation(
        current=situation.current,
        target=replace(situation.at(choice.replicas), batch=wish),
        measured=situation.measured,
        predicted=promised,
        restart_seconds=situation.restart_seconds,
        payback_seconds=_payback(situation, choice.replicas) if moves else None,
        explanation=Explanation(
            code=choice.code,
            reason=choice.reason,
            evidence=tuple(_evidence(situation, promised if moves else None, wish)),
            alternatives=tuple(_alternatives(situation, choice)),
            confidence=_confidence(situation, promised) if moves else None,
            next_step=choice.next_step if not moves else _next_step(situation),
        ),
        decided_at=situation.now,
    )


def _promise(situation: Situation, replicas: int) -> Prediction | None:
    try:
        return situation.predict(replicas)
    except Undetermined:
        return None


def _payback(situation: Situation, replicas: int) -> float | None:
    gain = worth(situation, replicas)
    return situation.restart_seconds / gain if gain > 0 else None


def _confidence(situation: Situation, promised: Prediction | None) -> float | None:
    """Return the probability that verification keeps the promise: in the band, and worth a
    restart for a growth.
    """
    if promised is None:
        return None
    grows = promised.examples_per_second > situation.rate
    needed = situation.rate * (1 + situation.settings.minimum_gain) if grows else 0.0
    return chance(promised, max(promised.low, needed))


def _next_step(situation: Situation) -> str:
    job = situation.job
    if job.advise_only:
        return (
            f"Brain only advises on this job: {job.advise_only}. Approve or reject the plan. "
            f"`brain lift-advise-only {job.document.name}` lets Brain act again."
        )
    return {
        PolicyMode.AUTO: (
            "The change begins at the next safe point; then Brain verifies it by measuring."
        ),
        PolicyMode.APPROVE: (
            "Approve or reject the plan; once it is applied, Brain verifies it by measuring."
        ),
        PolicyMode.SHADOW: "The plan is only recorded, because the policy mode is shadow.",
        PolicyMode.OFF: "",
    }[situation.mode]


def _evidence(
    situation: Situation, promised: Prediction | None, wish: BatchWish | None
) -> list[Evidence]:
    found: list[tuple[str, str | None]] = []
    if isinstance(situation.present, Point):
        point = situation.present
        half = number(point.rate * Z90 * point.relative_error, digits=2)
        rate = f"{number(point.rate)} ± {half} {situation.unit}"
        found.append(("measured", f"{rate} over {count(point.steps, 'step')}"))
    if promised is not None:
        found.append(("promised", f"{_interval(promised)} {situation.unit} (90 %)"))
    if wish is not None:
        scale = f"learning rate × {wish.learning_rate_scale:g}, which the script applies"
        found.append(("batch", f"{wish.global_size} examples a step, {scale}"))
    if situation.model is not None:
        found.append(("rests on", situation.model.basis))
    if situation.data_wait_share is not None:
        found.append(("waiting for data", f"{percent(situation.data_wait_share)} of the step"))
    if situation.save_seconds is not None:
        saving = f"{duration(situation.save_seconds)} of each step"
        found.append(("saving", f"{saving}, because the script saves after most steps"))
    if situation.served is not None:
        found.append(("parameter servers", _servers(situation.served.servers)))
    seen = situation.restarts_measured
    how = f"from {count(seen, 'change')} of its own" if seen else "assumed"
    found.append(("cost of a restart", f"{duration(situation.restart_seconds)}, {how}"))
    rest = f"{duration(situation.remaining_seconds)}, {situation.remaining_basis}"
    found.append(("still to come", rest))
    return [Evidence(label=label, value=value) for label, value in found if value]


def _servers(servers: Sequence[ParameterServer]) -> str:
    busy = ", ".join(percent(one.busy) for one in servers)
    hot = hot_server(servers)
    said = "" if hot is None else f"; server {hot} delays the others"
    return f"{len(servers)}, which use {busy} of their reserved processors{said}"


def _interval(prediction: Prediction) -> str:
    low, high = number(prediction.low), number(prediction.high)
    return f"{number(prediction.examples_per_second)}, {low} … {high}"


def _alternatives(situation: Situation, choice: Choice) -> list[Alternative]:
    reasons = dict(choice.why_not)
    if choice.replicas != situation.replicas:
        better = change(worth(situation, choice.replicas))
        reasons[situation.replicas] = f"staying would forgo a gain of {better}"
    reasons.pop(choice.replicas, None)
    near = sorted(reasons, key=lambda size: (abs(math.log(size / situation.replicas)), size))
    return [
        Alternative(replicas=size, gain=situation.gain(size), why_not=reasons[size])
        for size in sorted(near[:_SHOWN])
    ]
