"""Recorded decisions, each with its repetition and the expected difference between them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from brain import cycle
from brain.errors import Undetermined
from brain.models.fitting import Z90
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.models.terms import terms_of
from brain.ports import Stores, Transaction
from brain.settings import Settings
from brain.simulator.replay.past import Cut, PastEvidence, past
from brain.simulator.replay.peers import allotted
from brain.simulator.replay.record import Record, RecordedDecision, Recording
from brain.types.job import JobId
from brain.types.plan import PlanState
from brain.types.recommendation import Prediction, Recommendation
from brain.typeset import count

#: Events that only a turn writes.
_OF_TURNS = frozenset({"hold", "plan.Proposed", "plan.Verified", "plan.RolledBack", "plan.Expired"})
#: Called with the numbers of replayed and of all decisions.
Progress = Callable[[int, int], None]


class ReplayVerdict(StrEnum):
    """The result of repeating one decision."""

    SAME = "same"
    DIFFERENT = "different"
    #: The record determines neither the other decision nor its result.
    UNTOLD = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The evidence for a job's throughput at a size."""

    replicas: int
    #: Epochs of recorded worlds that were measured at the size; empty if only a model predicts it.
    worlds: tuple[int, ...]
    #: Prediction from all recorded data of the job; None if it does not reach that size.
    predicted: Prediction | None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A recorded decision, and the decision of the replay."""

    decision: RecordedDecision
    verdict: ReplayVerdict
    #: Size, code and reason of the other decision; None without one.
    replicas: int | None = None
    code: str = ""
    reason: str = ""
    #: Evidence for the world that ran.
    evidence: PastEvidence = PastEvidence.NOTHING
    #: Size that really stood afterwards, with its beginning and duration.
    stood: int
    stood_from: datetime
    stood_seconds: float
    #: Relative change of throughput against the size that stood, with its 90 % band; 0.2 is 20 %
    #: more.
    gain: tuple[float, float, float] | None = None
    #: Replica-hours above those of the size that stood, until the next recorded change.
    replica_hours: float | None = None
    supports: tuple[Support, ...] = ()
    #: Sentence on what is undetermined, and why.
    untold: str = ""


def replay(
    stores: Stores,
    recording: Recording,
    *,
    policy: str,
    settings: Settings,
    recorded_settings: Settings,
    progress: Progress | None = None,
) -> tuple[Replayed, ...]:
    """Repeat every decision of a recording.

    Args:
        policy: ``brain``, or one of ``brain.simulator.policies``.
        settings: The settings to try.
        recorded_settings: The installation's settings. If Brain with these settings does not
            reproduce a recorded decision, data is missing, and the decision is undetermined.
    """
    every = [
        (record, decision)
        for record in recording.jobs
        if recording.about is None or record.job.id in recording.about
        for decision in record.decisions(recording.since)
    ]
    every.sort(key=lambda pair: pair[1].at)
    found = []
    with stores.transaction(read_only=True) as tx:
        for number, (record, decision) in enumerate(every):
            again = _Again(recording, tx, record, decision, recorded_settings)
            found.append(again.under(policy, settings))
            if progress is not None:
                progress(number + 1, len(every))
    return tuple(found)


class _Again:
    """One decision to repeat, with its past."""

    def __init__(
        self,
        recording: Recording,
        tx: Transaction,
        record: Record,
        decision: RecordedDecision,
        recorded_settings: Settings,
    ) -> None:
        self._recording, self._tx = recording, tx
        self._record, self._decision = record, decision
        self._recorded_settings = recorded_settings

    def under(self, policy: str, settings: Settings) -> Replayed:
        """Return the decision under another policy or other settings."""
        cut = _cut(self._recording, self._record, self._decision)
        if cut is None:
            return self._untold("its event is no longer kept")
        again, evidence = self._decided(self._recorded_settings, cut)
        if again is None:
            return self._untold("the data for it is no longer kept", evidence=evidence)
        if self._decision.generation is None and again.hold:
            # While a plan is carried out its size stands, but the world may still be the old one.
            stands = again.target.replicas
            self._decision = replace(self._decision, before=stands, replicas=stands)
        if again.target.replicas != self._decision.replicas:
            why = (
                f"with the data that is still stored Brain decides on {again.target.replicas} "
                f"replicas ({again.explanation.code}), but at that time it decided on "
                f"{self._decision.replicas}: some data is gone, or the settings were different"
            )
            return self._untold(why, evidence=evidence)
        if policy == "brain":
            other, _ = self._decided(settings, cut)
            assert other is not None, "the same past"
            size, code, reason = _said(other)
        else:
            size, reason = self._allotted(policy, cut)
            code = policy
        return self._compared(size, code, reason, evidence)

    def _decided(self, settings: Settings, cut: Cut) -> tuple[Recommendation | None, PastEvidence]:
        job = self._record.job
        stores, evidence = past(self._recording, self._tx, job.pool, cut, settings)
        known = evidence.get(job.id, PastEvidence.NOTHING)
        turn = cycle.turn(stores, job.pool, settings, cut.at).checked()
        return turn.decisions.get(job.id), known

    def _allotted(self, policy: str, cut: Cut) -> tuple[int, str]:
        size = allotted(policy, self._recording, self._record.job.id, cut)
        if size == 0:
            return 0, f"{policy} lets it wait"
        return size, f"{policy} gives it {count(size, 'replica')}"

    def _compared(self, size: int, code: str, reason: str, evidence: PastEvidence) -> Replayed:
        decision, stood = self._decision, self._stood()
        begins, seconds = self._while()
        same = size == decision.replicas
        made = Replayed(
            decision=decision,
            verdict=ReplayVerdict.SAME if same else ReplayVerdict.DIFFERENT,
            replicas=size,
            code=code,
            reason=reason,
            evidence=evidence,
            stood=stood,
            stood_from=begins,
            stood_seconds=seconds,
        )
        if same:
            return made
        supports = tuple(self._support(each) for each in (size, stood))
        made = replace(made, supports=supports, replica_hours=(size - stood) * seconds / 3600)
        ours, theirs = (support.predicted for support in supports)
        if size == 0:
            return replace(made, gain=(-1.0, -1.0, -1.0))
        if ours is None or theirs is None:
            missing = next(support for support in supports if support.predicted is None)
            return replace(made, untold=f"{missing.replicas}: {missing.why_not}")
        return replace(made, gain=_ratio(ours, theirs))

    def _support(self, size: int) -> Support:
        worlds = tuple(point.epoch for point in self._record.points if point.replicas == size)
        try:
            predicted, why_not = self._model().predict(size), ""
        except Undetermined as unknown:
            predicted, why_not = None, str(unknown)
        return Support(replicas=size, worlds=worlds, predicted=predicted, why_not=why_not)

    def _model(self) -> JobModel:
        """Return a model of all measurements of the job, later worlds included."""
        points = self._record.points
        if not points:
            raise Undetermined("no world of the job was ever measured")
        return fit(points[-1], points[:-1], terms=terms_of(self._record.job.document))

    def _stood(self) -> int:
        """Return the size after the decision: a plan that no world met changed nothing."""
        decision = self._decision
        if decision.generation is None:
            return decision.replicas
        plan = next(p for p in self._record.plans if p.generation == decision.generation)
        reached = plan.outcome.epoch is not None or plan.state in (
            PlanState.APPLIED,
            PlanState.VERIFIED,
            PlanState.ROLLED_BACK,
        )
        return decision.replicas if reached else decision.before

    def _while(self) -> tuple[datetime, float]:
        """Return when the size after the decision began, and for how many seconds it stood."""
        decision, record = self._decision, self._record
        begins = decision.at
        if decision.generation is not None and self._stood() == decision.replicas:
            plan = next(p for p in record.plans if p.generation == decision.generation)
            formed = [w.formed_at for w in record.worlds if w.epoch == plan.outcome.epoch]
            begins = formed[0] if formed else begins
        ends = record.until(begins, self._recording.now)
        return begins, max(0.0, (ends - begins).total_seconds())

    def _untold(self, why: str, *, evidence: PastEvidence = PastEvidence.NOTHING) -> Replayed:
        begins, seconds = self._while()
        return Replayed(
            decision=self._decision,
            verdict=ReplayVerdict.UNTOLD,
            evidence=evidence,
            stood=self._stood(),
            stood_from=begins,
            stood_seconds=seconds,
            untold=why,
        )


def _cut(recording: Recording, record: Record, decision: RecordedDecision) -> Cut | None:
    """Return the cut just before the turn that made a decision, because the turn is repeated from
    its beginning. All rows that one turn writes have one time.
    """
    ids = [
        event.id
        for other in recording.jobs
        if other.job.pool == record.job.pool
        for event in other.events
        if event.at == decision.at and event.kind in _OF_TURNS
    ]
    return Cut(before=min(ids), at=decision.at) if ids else None


def _said(advice: Recommendation) -> tuple[int, str, str]:
    return advice.target.replicas, advice.explanation.code, advice.explanation.reason


def _ratio(ours: Prediction, theirs: Prediction) -> tuple[float, float, float]:
    """Return the relative change from one throughput to another with its 90 % band; errors count
    as independent.
    """
    center = math.log(ours.examples_per_second / theirs.examples_per_second)
    spread = math.hypot(_width(ours), _width(theirs))
    low, high = center - spread, center + spread
    return math.expm1(center), math.expm1(low), math.expm1(high)


def _width(prediction: Prediction) -> float:
    """Return half of the width of the 90 % band in logarithms."""
    if prediction.low <= 0:
        return Z90
    return math.log(prediction.high / prediction.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The totals of a replay."""

    decisions: int
    same: int
    different: int
    untold: int
    #: Number of different decisions with an expected difference.
    expected: int
    #: Sums over those: additional replica-hours, and mean change of throughput weighted by time.
    replica_hours: float
    gain: float | None


def tally(replayed: Sequence[Replayed]) -> Tally:
    """Add up a replay; time that several decisions of a job cover counts for the first of them."""
    by_verdict = Counter(one.verdict for one in replayed)
    known = [
        one for one in replayed if one.verdict is ReplayVerdict.DIFFERENT and one.gain is not None
    ]
    seconds = hours = gains = 0.0
    covered: dict[JobId, datetime] = {}
    for one in sorted(known, key=lambda one: one.stood_from):
        assert one.gain is not None, "known"
        job, ends = one.decision.job.id, one.stood_from + timedelta(seconds=one.stood_seconds)
        begins = max(one.stood_from, covered.get(job, one.stood_from))
        covered[job] = max(ends, begins)
        share = (covered[job] - begins).total_seconds()
        seconds += share
        gains += one.gain[0] * share
        if one.stood_seconds > 0:
            hours += (one.replica_hours or 0.0) * share / one.stood_seconds
    return Tally(
        decisions=len(replayed),
        same=by_verdict[ReplayVerdict.SAME],
        different=by_verdict[ReplayVerdict.DIFFERENT],
        untold=by_verdict[ReplayVerdict.UNTOLD],
        expected=len(known),
        replica_hours=hours,
        gain=gains / seconds if seconds > 0 else None,
    )
