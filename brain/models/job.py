"""The model of one job: its throughput at any size, with uncertainty and evidence.

``fit`` makes a ``JobModel`` from the points of the job's worlds (``fitting.Point``); the loop, the
allocator, estimates and the simulator use no other model. ``fit`` is a pure function of its
arguments, so a restarted Brain makes the same decisions. Its results are cached.

    fit(present, earlier, terms=terms_of(document)) -> JobModel
        .predict(4)                       Prediction, or Undetermined with what to measure first
        .predict(4, nodes=2, accelerator="A100")
        .curve([Size(replicas=2), …])     the same for many sizes; returns Undetermined too
        .goodput(Size(…))                 useful examples per second, with their batch
        .trial(Size(…))                   the most informative free trial for a size
        .report, .basis, .calibration     evidence, and the outcome of earlier promises
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from brain.errors import Undetermined
from brain.models.calibration import Calibration, calibration, surprised
from brain.models.earlier import (
    NOTHING,
    Inherited,
)
from brain.models.efficiency import NoiseByBatch, efficiency
from brain.models.fitting import REPEAT, Z90, Point
from brain.models.goodput import Batches, Goodput, best, chosen
from brain.models.report import Report
from brain.models.sizes import (
    Size,
    configurations,
    copies_of,
    largest_local,
    like,
    nodes_of,
    same_batch,
    unspread,
)
from brain.models.step_time.accelerators import Accelerators
from brain.models.step_time.columns import Configuration, Floats, rows
from brain.models.step_time.trials import StepTimeTrial, free_trials, next_trial
from brain.models.terms import (
    Batching,
    SpeedTerms,
    configuration,
    local_batch,
    observation,
    unit_of,
)
from brain.types.recommendation import Prediction
from brain.typeset import count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobModel:
    """Predicts one job's throughput by size; made by ``fit``.

    Rates are in the unit of the points, examples/s or steps/s, and bands are 90 % intervals. A
    prediction is ``exploring`` if no world with this number of replicas was measured on the size's
    kind of accelerator. The model predicts up to twice the largest size measured in this run or an
    earlier one. If the job has changed (``surprised``), it predicts up to the job's own largest
    size.
    """

    #: Points, oldest first; the last one is of the present world.
    points: tuple[Point, ...]
    left_out: tuple[str, ...]
    times: Accelerators
    batching: Batching
    terms: SpeedTerms
    #: Forecasts of sizes made before their worlds were measured, with the later measurements.
    outcomes: tuple[tuple[Prediction, float], ...]
    widening: float
    #: Points taken from earlier runs of the job's script.
    inherited: Inherited = NOTHING
    #: Power of the batch with which the gradient noise scale grows.
    noise_exponent: float = 0.0
    #: Answers that were already computed, by size.
    _known: dict[Size, Prediction | Undetermined] = field(default_factory=dict, repr=False)
    #: Configurations that were already computed, by size.
    _asked_of: dict[Size, Configuration] = field(default_factory=dict, repr=False)

    @property
    def present(self) -> Point:
        """Return the point of the world that runs now."""
        return self.points[-1]

    @property
    def unit(self) -> str:
        """Return ``examples/s``, or ``steps/s`` if the batch size is unknown."""
        return unit_of(self.present)

    @property
    def reach(self) -> int:
        """Return the largest number of replicas for which the model predicts throughput."""
        largest = max(point.replicas for point in self.points)
        return largest if self.surprised else 2 * max(largest, self.inherited.reach)

    @property
    def surprised(self) -> bool:
        """Return True if the last worlds differed so much from their forecasts that the job must
        have changed.
        """
        return surprised(self.outcomes)

    @property
    def basis(self) -> str:
        """Return one sentence that names the measurements on which the model is based."""
        sizes = sorted({point.replicas for point in self.points})
        seen = ", ".join(map(str, sizes))
        return (
            f"{count(sum(point.steps for point in self.points), 'step')} measured at {seen} "
            f"replica{'s' * (sizes != [1])}, {self.batching}{self.inherited.basis}"
        )

    @property
    def report(self) -> Report:
        """Return which data the fit used and which it left out, and how reliable the model is."""
        return Report(
            points=len(self.points),
            left_out=self.left_out,
            batching=self.batching,
            fits={kind: model.report_ for kind, model in self.times.models.items()},
            widening=self.widening,
            surprised=self.surprised,
        )

    @property
    def calibration(self) -> Calibration | None:
        """Return how well this job's forecasts agreed with measurements; None until a forecast has
        been compared with a measurement.
        """
        return calibration(self.outcomes) if self.outcomes else None

    def predict(
        self, replicas: int, *, nodes: int | None = None, accelerator: str | None = None
    ) -> Prediction:
        """Return the throughput at a size, with the batch size that the script would have there.

        Raises:
            Undetermined: the size is beyond ``reach`` or not possible, or the job never ran on this
                kind of accelerator.
        """
        found = self.curve([Size(replicas=replicas, nodes=nodes, accelerator=accelerator)])[0]
        if isinstance(found, Undetermined):
            raise Undetermined(str(found), code=found.code)
        return found

    def curve(self, sizes: Sequence[Size]) -> list[Prediction | Undetermined]:
        """Return ``predict`` for many sizes in one call; a size that cannot be predicted gets its
        ``Undetermined`` instead.
        """
        asked: dict[str, list[Size]] = defaultdict(list)
        for size in dict.fromkeys(sizes):
            if size not in self._known:
                refusal = self._refusal(size)
                if refusal is None:
                    asked[size.accelerator or self.present.accelerator].append(size)
                else:
                    self._known[size] = refusal
        for kind, together in asked.items():
            self._known.update(zip(together, self._rates(kind, together), strict=True))
        return [self._known[size] for size in sizes]

    def goodput(self, size: Size, *, most_examples: float | None = None) -> Goodput:
        """Return the useful examples per second at a size with its best batch size, in examples of
        the first batch size.

        The batch size is at most ``most_examples``. If ``most_examples`` is None, or the noise
        scale is unknown, the batch size is the first one.

        Raises:
            Undetermined: ``predict`` would raise it, no batch size was seen, or no allowed batch
                size can be divided among the replicas.
        """
        refusal = self._refusal(size)
        if refusal is not None:
            raise refusal
        copies, nodes = copies_of(size.replicas, self.terms), nodes_of(size, self.points)
        kind = size.accelerator or self.present.accelerator
        batches = self.batches(most_examples, kind)
        return best(self.times.on(kind), min(nodes, copies), copies, batches)

    def batches(self, most_examples: float | None, kind: str | None = None) -> Batches:
        """Return the batch sizes that the script may use on ``kind`` (None: the present kind of
        accelerator), up to ``most_examples``.

        Raises:
            Undetermined: no batch was seen.
        """
        first = self.first_batch
        if first is None:
            raise Undetermined("no batch size was seen; declare batch.globalSize", code="no-batch")
        return Batches(
            first=first,
            largest=max(first, most_examples or 0.0),
            smallest_local=self.terms.smallest_local,
            largest_local=largest_local(self.points, self.terms, kind),
            noise=self.noise,
        )

    @property
    def first_batch(self) -> float | None:
        """Return the global batch size with which other batch sizes are compared.

        It is the declared batch size, else the batch size of the first world.
        """
        seen = self.points[0].examples_per_step
        if self.terms.global_batch:
            return self.terms.global_batch
        return None if seen is None else seen / self.terms.shared

    @property
    def noise(self) -> NoiseByBatch | None:
        """Return the gradient noise as a function of the batch size; None if it is not measured."""
        found = self.present.noise_scale
        batch = self.present.noise_batch or self.present.examples_per_step
        if found is None or batch is None:
            return None
        batch /= self.terms.shared
        return NoiseByBatch(examples=found, batch=batch, exponent=self.noise_exponent)

    def worth(self, size: Size | int) -> float:
        """Return the value of an example at a size, in examples of the first batch size.

        The value is 1 if the script's batch size does not change, or if gradient noise is not
        measured.
        """
        first, noise = self.first_batch, self.noise
        if first is None or noise is None or self.batching in (Batching.GLOBAL, Batching.UNKNOWN):
            return 1.0
        asked = size if isinstance(size, Size) else Size(replicas=size)
        if self.batching is Batching.TOLD:
            batch = self._runs(asked).batch
        else:
            local = local_batch(self.present) * self.present.accumulation
            batch = local * copies_of(asked.replicas, self.terms)
        return float(efficiency(batch, first_batch=first, noise=noise))

    def runs(self, size: Size) -> Configuration | None:
        """Return the configuration at a size; None if the batch size at other sizes is unknown.

        Raises:
            Undetermined: ``predict`` would raise it for this size.
        """
        if self.batching is Batching.UNKNOWN or self.present.examples_per_step is None:
            return None
        refusal = self._refusal(size)
        if refusal is not None:
            raise refusal
        return self._runs(size)

    def _runs(self, size: Size) -> Configuration:
        if size not in self._asked_of:
            kind = size.accelerator or self.present.accelerator
            self._asked_of[size] = self._asked(kind, [size], self.batching)[0]
        return self._asked_of[size]

    def trial(self, size: Size) -> StepTimeTrial | None:
        """Return the trial of a micro-batch size at the present size that is most informative about
        ``size``.

        The global batch size stays the same, so the trial costs no restart. None if no trial is
        possible.
        """
        if self.present.examples_per_step is None or self._refusal(size) is not None:
            return None
        kind = size.accelerator or self.present.accelerator
        here = configuration(self.present, self.terms)
        free = free_trials(here, largest_local(self.points, self.terms, kind))
        free = [one for one in free if one.local_batch >= self.terms.smallest_local]
        question = self._asked(kind, [size], self._rules()[0])[0]
        return next_trial(self.times.models[kind], question, free)

    def _refusal(self, size: Size) -> Undetermined | None:
        if size.replicas < 1 or copies_of(size.replicas, self.terms) < 1:
            return Undetermined(
                f"{count(size.replicas, 'replica')} hold no whole copy of the network; "
                f"take {-(-self.terms.shared // self.terms.processes_per_replica)} replicas or more"
            )
        if size.replicas > self.reach:
            seen = max(point.replicas for point in self.points)
            if self.surprised:
                return Undetermined(
                    "recent worlds missed their forecasts, so Brain predicts no size above "
                    f"{seen} replicas; measure the job again at sizes that it has already had",
                    code="surprised",
                )
            return Undetermined(
                f"{size.replicas} replicas are more than twice the largest size measured, {seen}; "
                f"measure {2 * seen} replicas first"
            )
        try:
            self.times.on(size.accelerator or self.present.accelerator)
        except Undetermined as untried:
            return untried
        if self.batching is Batching.TOLD:
            batches = self.batches(self.terms.largest_batch, size.accelerator)
            return unspread(size.replicas, batches, self.terms)
        return None

    def _rates(self, kind: str, sizes: Sequence[Size]) -> list[Prediction]:
        """Return the throughput of sizes on one kind; if the rule of batching is unknown, both
        rules count evenly.
        """
        means, variances = [], []
        for way in self._rules():
            asked = self._asked(kind, sizes, way)
            if way is Batching.TOLD:
                self._asked_of.update(zip(sizes, asked, strict=True))
            mean, spread = self.times.on(kind).predict(rows(asked), return_std=True)
            means.append(np.log(self._examples(asked)) - mean)
            variances.append(spread**2)
        widths = np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))
        center, spread = self._with_measured(kind, sizes, np.mean(means, axis=0), widths)
        seen = {point.replicas for point in self.points if point.accelerator == kind}
        return [
            Prediction(
                examples_per_second=math.exp(middle),
                low=math.exp(middle - Z90 * width),
                high=math.exp(middle + Z90 * width),
                exploring=size.replicas not in seen,
            )
            for size, middle, width in zip(sizes, center, spread, strict=True)
        ]

    def _with_measured(
        self, kind: str, sizes: Sequence[Size], center: Floats, spread: Floats
    ) -> tuple[Floats, Floats]:
        """Return the log rates of sizes, mixed by precision with the measurements of those
        sizes: the model's curve is smooth, but jobs are not (a batch that divides well, a full
        switch).
        """
        for at, size in enumerate(sizes):
            for point in self.points:
                if (point.accelerator, point.replicas) != (kind, size.replicas):
                    continue
                if point.nodes != nodes_of(size, self.points):
                    continue
                if not self._same_batch(point, size):
                    continue
                error = observation(point, self.present, self.terms).relative_error
                known = spread[at] ** -2
                seen = 1 / ((REPEAT**2 + error**2) * self.widening**2)
                center[at] = (known * center[at] + seen * math.log(point.rate)) / (known + seen)
                spread[at] = (known + seen) ** -0.5
        return center, spread

    def _same_batch(self, point: Point, size: Size) -> bool:
        """Return True if a point's batch is the one that its size would have now."""
        if self.batching is Batching.TOLD:
            return like(configuration(point, self.terms), self._runs(size))
        return same_batch(point, self.present, self.batching)

    def _rules(self) -> tuple[Batching, ...]:
        if self.batching is Batching.UNKNOWN:
            return Batching.GLOBAL, Batching.LOCAL
        return (self.batching,)

    def _examples(self, asked: Sequence[Configuration]) -> Floats:
        """Return the examples per step as the points count them: those of every process, or one
        step.
        """
        if self.present.examples_per_step is None:
            return np.ones(len(asked))
        return np.array([one.batch * self.terms.shared for one in asked])

    def _asked(self, kind: str, sizes: Sequence[Size], way: Batching) -> list[Configuration]:
        if way is not Batching.TOLD:
            seen = [one.configuration for one in self.inherited.observations.get(kind, ())]
            return configurations(
                kind, sizes, way, points=self.points, terms=self.terms, others=seen
            )
        spread = [(nodes_of(s, self.points), copies_of(s.replicas, self.terms)) for s in sizes]
        batches = self.batches(self.terms.largest_batch, kind)
        return chosen(self.times.on(kind), [(min(pair), pair[1]) for pair in spread], batches)
