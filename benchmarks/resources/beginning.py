"""Measures how soon the second run of a script reserves the right amounts.

The first run of each made-up script declares no amounts, and is measured for half an hour. The
second run is submitted through the submit route, needs somewhat more or less, and is governed by
turns of the service. The right amounts are the CPU use that 98 % of the run's readings do not
exceed, and the largest memory use, each with the margin that advice adds. The result is the time
after which both reservations stay within 20 % of the right amounts.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import Row
from brain import calls
from brain.models.resources import cpu, host_memory
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.document import UNSAID
from brain.types.resources import Resources
from brain.types.world import WorldEvent
from tests import builders
from tests.api.app import Api
from tests.virtual import Laptop, scaling_by

_COUNT, _EVERY, _RUN = 20, 30, 2400
#: Deviation of what the second run needs, in log; noise of a reading.
_OTHER, _NOISE = 0.1, 0.03
_NEAR, _BAR_MINUTES = 0.2, 10.0
_SETTINGS = Settings(policy_mode="auto")


@dataclass(frozen=True, slots=True)
class Script:
    """The resource use of each replica of a script."""

    millis: float
    memory_bytes: float

    @property
    def right(self) -> Resources:
        """Return the amounts that each replica should reserve."""
        peak = self.memory_bytes * (1 + _NOISE)
        return Resources(
            cpu_millis=round(cpu.MARGIN * self.millis * (1 + 2 * _NOISE)),
            memory_bytes=round(host_memory.request(peak)),
        )


def seconds_to_right(first: Script, second: Script, random: np.random.Generator) -> float:
    """Run a script twice; return the seconds until its second run reserves the right amounts."""
    given = {"replicas": Bounds(min=1, max=1), "resources": UNSAID, "script_hash": "a1"}
    here = Laptop(scaling_by(0.9), settings=_SETTINGS, cpus=16, **given).start()
    for _ in _lives(here, first, random):
        pass
    here.report(WorldEvent.FINISHED)
    with tempfile.TemporaryDirectory() as home:
        api = Api(Path(home), stores=here.stores, now=here.now, settings=_SETTINGS)
        document = {
            "name": "again",
            "command": list(here.document.command),
            "scriptHash": "a1",
            "replicas": {"min": 1, "max": 1},
            "checkpoint": {"path": "last.pt"},
            "batch": {"globalSize": here.global_batch},
        }
        with api.client(name="ada") as client:
            here.id = client.send(calls.submit(document)).id
    here.start()
    wrong, right = 0.0, second.right
    for seconds in _lives(here, second, random):
        has = here.job.resources
        pairs = (has.cpu_millis, right.cpu_millis), (has.memory_bytes, right.memory_bytes)
        if any(abs(one / other - 1) > _NEAR for one, other in pairs):
            wrong = seconds
    return wrong


def _lives(here: Laptop, script: Script, random: np.random.Generator) -> Iterator[float]:
    """Train, read the machine and take turns; yield the seconds so far."""
    for at in range(0, _RUN, _EVERY):
        here.train(5).wait(_EVERY - 5)
        here.observe(builders.replica(resources=here.wish().resources or here.document.resources))
        noise = np.exp(np.clip(random.normal(0, _NOISE, 2), -2 * _NOISE, _NOISE))
        reading = builders.host(
            int(here.now.timestamp()),
            job=here.id,
            measured_at=here.now,
            cpu_capacity_millis=16_000,
            memory_capacity_bytes=2**35,
            job_cpu_millis=round(script.millis * noise[0]),
            job_memory_bytes=round(script.memory_bytes * noise[1]),
        )
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()
        yield float(at + _EVERY)


def rows(seed: int) -> list[Row]:
    """Return the row of one seed."""
    random = np.random.default_rng([seed, 3])
    found = []
    for _ in range(_COUNT):
        millis, memory = np.exp(random.uniform(np.log([300, 2**28]), np.log([2500, 2**31])))
        more = np.exp(random.normal(0, _OTHER, 2))
        second = Script(millis * more[0], memory * more[1])
        found.append(seconds_to_right(Script(millis, memory), second, random) / 60)
    at_once = sum(minutes == 0 for minutes in found)
    return [
        Row(
            metric="(c) second run of a script: nine of ten reserve within 20 % of right after",
            value=float(np.quantile(found, 0.9)),
            unit="min",
            bar=_BAR_MINUTES,
            note=f"{at_once} of {_COUNT} from the start, by the submit route; worst "
            f"{max(found):.0f} min; made-up scripts, needs {100 * _OTHER:.0f} %, seed {seed}",
        )
    ]
