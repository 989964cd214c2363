"""``brain estimate``: what is printed."""

import json

import pytest

from brain.cli.estimate import expect_figures, lines, show
from brain.errors import BadInput
from brain.types.estimate import Band, Estimate, SizeEstimate
from brain.types.explanation import Explanation
from brain.types.recommendation import Prediction


def answer(**fields: object) -> Estimate:
    row = SizeEstimate(
        accelerator="A100",
        replicas=2,
        nodes=1,
        accelerators=2,
        throughput=Prediction(examples_per_second=1000, low=900, high=1100),
        finish_seconds=Band(value=7200, low=6000, high=8600),
        cost=Band(value=10, low=8.3, high=12),
        network_bytes_per_second=Band(value=1, low=0, high=2),
        chosen=True,
    )
    made: dict[str, object] = {
        "name": "digits",
        "unit": "examples/s",
        "currency": "$",
        "basis": "100 steps measured at 1 replica",
        "similar": (),
        "work": None,
        "sizes": (row,),
        "explanation": Explanation(code="estimated", reason="it pays", next_step="Submit it."),
        "missing": (),
        "exploring": False,
    }
    return Estimate(**(made | fields))  # type: ignore[arg-type]


def test_a_row_has_time_money_and_a_mark_where_to_begin(capsys: pytest.CaptureFixture[str]):
    show(answer(), "table")
    printed = capsys.readouterr().out
    assert "COST $" in printed
    assert "10.0 (8.30–12.0)" in printed
    assert "begin here" in printed


def test_next_to_nothing_is_zero(capsys: pytest.CaptureFixture[str]):
    show(answer(), "table")
    assert " 0  " in capsys.readouterr().out


def test_what_is_missing_stands_below(capsys: pytest.CaptureFixture[str]):
    show(answer(missing=("Cost: nobody said.",)), "table")
    assert capsys.readouterr().out.endswith("Missing: Cost: nobody said.\n")


def test_where_no_size_can_be_named_it_says_so():
    assert ("Brain cannot recommend a size; the table gives the reasons.") in lines(
        answer(explanation=None), "table"
    )


def test_programs_get_the_whole_answer(capsys: pytest.CaptureFixture[str]):
    show(answer(), "json")
    assert json.loads(capsys.readouterr().out)["sizes"][0]["finish_seconds"]["value"] == 7200


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_figure_that_is_none_is_refused_by_its_option(value: float):
    with pytest.raises(BadInput, match=r"--examples .* must be a finite number above 0"):
        expect_figures({"--deadline": None, "--examples": value})
