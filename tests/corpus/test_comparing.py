"""What counts as a difference between two runs of a program."""

from dataclasses import replace

from benchmarks.corpus.comparing import between_launchers, torchrun_failed, with_undisturbed
from benchmarks.corpus.programs import Program
from benchmarks.corpus.runs import Seen, stable

TRAINS = Program(name="a", origin="here", group="g", command=("a.py",), resumes=True)
DRAWS = replace(TRAINS, resumes=False, unseeded=True)
WHOLE = Seen(exit_codes=(0,), losses={1: "0.5", 2: "0.25"}, messages=("step 1 loss 0.5",))


def test_equal_runs_do_not_differ() -> None:
    assert between_launchers(TRAINS, "plain", WHOLE, WHOLE) == []


def test_one_bit_of_a_loss_is_a_difference() -> None:
    ours = replace(WHOLE, losses={1: "0.5", 2: "0.25000000000000006"})
    assert between_launchers(TRAINS, "plain", WHOLE, ours) == ["1 losses differ, first at step 2"]


def test_a_line_too_many_and_a_line_that_is_missing_are_told() -> None:
    ours = replace(WHOLE, messages=("warning",))
    assert len(between_launchers(TRAINS, "plain", WHOLE, ours)) == 2


def test_an_exit_code_a_final_step_and_a_leftover_are_differences() -> None:
    ours = Seen(exit_codes=(1,), losses={1: "0.5"}, resumed=(1,), left=("python a.py",))
    assert len(between_launchers(TRAINS, "killed", WHOLE, ours)) == 3


def test_a_start_that_loads_no_checkpoint_is_told() -> None:
    assert between_launchers(TRAINS, "killed", WHOLE, WHOLE) == ["no checkpoint was loaded"]


def test_a_launcher_that_was_signalled_ends_in_its_own_way() -> None:
    theirs = replace(WHOLE, exit_codes=(1, 0), resumed=(1,))
    ours = replace(theirs, exit_codes=(143, 0))
    assert between_launchers(TRAINS, "stopped", theirs, ours) == []
    assert between_launchers(TRAINS, "stopped", theirs, replace(ours, exit_codes=(143, 1))) != []


def test_a_run_that_torchrun_alone_did_not_end_well_is_told_apart() -> None:
    ours = replace(WHOLE, exit_codes=(143, 0))
    hung = replace(WHOLE, exit_codes=(1, -9), last_words="RendezvousConnectionError: gone")
    told = torchrun_failed("stopped", hung, ours)
    assert told == "exit codes (1, -9): RendezvousConnectionError: gone"
    assert torchrun_failed("stopped", replace(WHOLE, exit_codes=(1, 0)), ours) == ""
    assert torchrun_failed("stopped", hung, replace(WHOLE, exit_codes=(143, 1))) == ""
    assert torchrun_failed("plain", replace(WHOLE, exit_codes=(1,)), WHOLE) == ""


def test_ranks_that_draw_the_same_without_a_seed_are_told() -> None:
    theirs = Seen(exit_codes=(0,), drawn=("seed 1", "seed 2"))
    ours = Seen(exit_codes=(0,), drawn=("seed 1", "seed 1"))
    assert between_launchers(DRAWS, "plain", theirs, theirs) == []
    assert len(between_launchers(DRAWS, "plain", theirs, ours)) == 1


def test_another_world_may_add_in_another_order_but_no_step_may_be_missing() -> None:
    near = replace(WHOLE, losses={1: "0.50001", 2: "0.25"})
    assert with_undisturbed(TRAINS, "resized", WHOLE, near) == []
    assert len(with_undisturbed(TRAINS, "killed", WHOLE, near)) == 1
    assert with_undisturbed(TRAINS, "killed", WHOLE, replace(WHOLE, losses={2: "0.25"})) == [
        "1 steps are missing"
    ]


def test_a_run_that_was_not_disturbed_in_time_proves_nothing() -> None:
    late = replace(WHOLE, disturbed=False)
    assert with_undisturbed(TRAINS, "killed", WHOLE, late) != []


def test_places_times_and_addresses_are_no_difference() -> None:
    assert stable("/tmp/corpus-a1/x at 0x7f00aa11bb") == stable("/tmp/corpus-b2/y at 0x7f00aa11cc")
    speed = "{'loss': '0.5', 'train_runtime': '%s'}"
    assert stable(speed % "1.5") == stable(speed % "2.25")
    assert stable("2026-01-01 10:00:00 warned") == stable("2026-01-02 11:00:00 warned")
