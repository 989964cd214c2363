"""What is kept of the corpus between two calls."""

from dataclasses import replace
from pathlib import Path

from benchmarks.corpus.programs import PROGRAMS
from benchmarks.corpus.report import Result, keep, table

FIRST, SECOND = (
    Result(program=each.name, origin=each.origin, event="plain", seconds=2.0, began="monday")
    for each in PROGRAMS[:2]
)


def test_a_program_that_ran_again_replaces_its_rows_alone(tmp_path: Path) -> None:
    kept = tmp_path / "runs.json"
    keep([FIRST], kept)
    keep([SECOND], kept)
    again = replace(SECOND, differences=("exit codes",), began="tuesday")

    assert keep([again], kept) == [FIRST, again]


def test_rows_of_a_program_that_is_gone_are_dropped(tmp_path: Path) -> None:
    kept = tmp_path / "runs.json"
    keep([FIRST, replace(FIRST, program="gone")], kept)

    assert keep([SECOND], kept) == [FIRST, SECOND]


def test_what_differs_is_told_by_name_and_what_cannot_run_by_its_reason() -> None:
    told = table([replace(FIRST, differences=("a step",)), replace(SECOND, needs="a card")])

    assert f"- {FIRST.program}, plain: a step" in told
    assert f"| {SECOND.program} | here | a card |" in told
