"""A run is disturbed before it ends, on a busy machine too."""

from benchmarks.corpus.runs import joining_pause

#: From the moment, step 7, to step 15: the last save but one, at which a world can grow.
STEPS_LEFT = 8


def test_a_launcher_that_starts_half_as_fast_as_the_first_joins_in_time() -> None:
    for first_seconds in (20.0, 60.0, 120.0):
        pause = joining_pause(2.0, first_seconds)
        assert STEPS_LEFT * pause > 1.5 * first_seconds


def test_on_an_idle_machine_steps_last_as_long_as_the_program_says() -> None:
    assert joining_pause(2.0, 9.0) == 2.0
