"""Parameter servers: what they bound, what they will hold, and the incidents that rules prevent."""

from dataclasses import replace

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.resources.server_memory import (
    ServerGrowth,
    forecast,
    look_ahead,
)
from brain.models.resources.servers import (
    ParameterServer,
    ServedJob,
    hot_server,
)


def job(*used: float, workers: int = 2, rate: float = 10.0, cpus: float = 4.0) -> ServedJob:
    servers = tuple(ParameterServer(cpus=cpus, used_cpus=one) for one in used)
    return ServedJob(workers=workers, steps_per_second=rate, servers=servers)


def test_one_configuration_gives_its_own_rate_back():
    assert job(1.0, 0.5).rate(2) == pytest.approx(10, rel=0.01)


def test_no_number_of_workers_is_faster_than_the_busiest_server():
    # 4 processors at 0.1 s a step: 40 steps a second.
    found = [job(1.0, 0.2).rate(workers) for workers in (1, 8, 64, 512)]

    assert found == sorted(found)
    assert found[-1] == pytest.approx(40, rel=0.01)


def test_incident_workers_were_added_while_a_server_was_full():
    assert not job(3.6).grows()
    assert job(3.6, workers=3).best(8)[0] == 5


def test_servers_get_the_processors_for_which_more_workers_would_wait():
    few = job(1.0, 0.5, workers=2)
    division = replace(few, most_cpus=64.0).best(16)

    assert division.servers == 2 < few.best(16).servers
    assert division.cpus == pytest.approx(0.1 * 14 / (0.2 - 0.15 / 4 + 0.15 / 64) / 0.7, rel=0.02)
    assert division.rate > few.best(16).rate
    assert few.best(16).cpus == 4.0, "they get no more than they may"


def test_a_full_server_that_may_get_more_processors_is_no_reason_to_add_another():
    full = replace(job(3.6, workers=3), most_cpus=16.0)
    assert full.grows()
    assert full.best(8).servers == 1
    assert full.best(8).cpus > 4


def test_incident_one_hot_server_held_up_all_workers():
    busy = job(3.8, 1.0, 1.2, workers=4)

    assert hot_server(busy.servers) == 0


def test_servers_that_are_all_full_are_too_few_not_hot():
    full = job(3.6, 3.7, 3.8)

    assert hot_server(full.servers) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: job(rate=0.0),
        lambda: job(1.0, rate=float("nan")),
        lambda: job(1.0, cpus=0.0),
        lambda: job(float("inf")),
        lambda: job(),
    ],
)
def test_nothing_is_guessed_of_servers_that_were_not_measured(build):
    with pytest.raises(Undetermined):
        build()


EXAMPLES = np.linspace(1e5, 1e6, 40)


def heaps(x: np.ndarray, exponent: float) -> np.ndarray:
    return 1e9 + 3e4 * x**exponent


@pytest.mark.parametrize("exponent", [0.4, 0.7, 1.0])
def test_a_law_without_noise_is_found_again(exponent: float):
    found = forecast(EXAMPLES, heaps(EXAMPLES, exponent), base_bytes=1e9, at=3e6)

    assert found.bytes == pytest.approx(float(heaps(np.array(3e6), exponent)), rel=0.001)
    assert found.most_bytes >= found.bytes * 0.999
    assert not found.changed


@pytest.mark.parametrize("seed", range(5))
def test_a_request_for_the_next_stretch_holds(seed: int):
    noise = 1 + 0.005 * np.random.default_rng(seed).standard_normal(EXAMPLES.size)
    found = forecast(EXAMPLES, heaps(EXAMPLES, 0.6) * noise, base_bytes=1e9, at=1.3e6)

    assert heaps(np.array(1.3e6), 0.6) < found.request_bytes < 1.4 * heaps(np.array(1.3e6), 0.6)


def test_incident_a_feature_was_added_and_the_server_ran_out_of_memory():
    late = np.maximum(0.0, EXAMPLES - 0.87e6)
    found = forecast(EXAMPLES, heaps(EXAMPLES, 0.5) + 2e3 * late, base_bytes=1e9, at=1.5e6)

    assert found.changed
    assert found.request_bytes > heaps(np.array(1.5e6), 0.5) + 2e3 * 0.63e6


def test_the_look_ahead_covers_two_moves_of_a_server():
    soon = look_ahead(0, 1000, examples_per_second=10, move_seconds=30)
    end = look_ahead(0, 100, examples_per_second=10, move_seconds=30)

    assert (soon, end) == (600, 100)


@pytest.mark.parametrize(
    ("examples", "used"),
    [
        ([1.0, 2.0], [1e9, 2e9]),
        (list(range(1, 11)), [float("nan")] * 10),
        ([1.0] * 10, [2e9] * 10),
        (list(range(1, 11)), [1e9] * 10),
    ],
)
def test_too_little_seen_of_memory_is_refused(examples: list[float], used: list[float]):
    with pytest.raises(Undetermined):
        forecast(examples, used, base_bytes=1e9, at=20)


def test_a_hot_row_stays_on_one_server_however_many_there_are():
    uneven, even = job(3.0, 1.0, 1.0, 1.0), job(1.5, 1.5, 1.5, 1.5)

    assert even.fullest(12) == pytest.approx(sum(even.demands) / 12)
    assert uneven.fullest(1000) > 0.5 * max(uneven.demands)


def grown(steps: int, servers: int = 2) -> ServerGrowth:
    growth = ServerGrowth()
    for done in range(1000, steps + 1, 1000):
        growth = growth.added(1000, 1e9 + 2 * 1e6 * done**0.6 / servers, servers)
    return growth


def test_growth_is_kept_thin_and_tells_what_is_to_come():
    growth = grown(400_000)
    found = growth.forecast(800_000)

    assert growth.steps == 400_000
    assert len(growth.readings) <= 48
    assert found is not None
    assert pytest.approx(found.bytes, rel=0.05) == 1e9 + 1e6 * 800_000**0.6


def test_on_other_servers_the_same_rows_go_on_growing():
    growth = grown(200_000)
    for done in range(201_000, 400_001, 1000):
        growth = growth.added(1000, 1e9 + 2 * 1e6 * done**0.6 / 4, 4)
    found = growth.forecast(600_000)

    assert found is not None
    assert not found.changed
    assert pytest.approx(found.bytes, rel=0.1) == 1e9 + 2 * 1e6 * 600_000**0.6 / 4


def test_a_server_that_was_hardly_seen_has_no_forecast():
    assert ServerGrowth().forecast(1000) is None
    assert grown(3000).forecast(9000) is None
