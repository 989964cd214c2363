"""Tables as they are seen: at 80 and 120 columns, and in a pipe."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import shown

#: What moves while a fleet stands still: how far a rate is known, clocks and ages.
MOVES = r"(?<=± )[0-9.]+|\b\d\d:\d\d\b|(?<=prediction is )[0-9a-z ]+(?= old)"


def steady(printed: str) -> str:
    """The same without blanks at ends, and without what moves."""
    # The age of a sample stands at the end of a line, and grows in length, too.
    printed = re.sub(r"(?<=newest sample is )[0-9a-z ]+(?= old)", "##", printed)
    printed = re.sub(MOVES, lambda known: "#" * len(known[0]), printed)
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [
        ("jobs-80", 80, ("jobs",)),
        ("jobs-120", 120, ("jobs",)),
        ("jobs-pipe", None, ("jobs", "--filter", "state:Running")),
        ("plans-80", 80, ("plans",)),
        ("plans-120", 120, ("plans",)),
        ("plans-pipe", None, ("plans",)),
        *(
            (f"{name}-{columns or 'pipe'}", columns, tuple(name.split("-")))
            for name in ("job-ranker", "explain-digits", "pool", "nodes", "report-digits")
            for columns in (80, 120, None)
        ),
    ],
)
def test_a_table_is_the_one_that_was_looked_at(
    service: dict[str, str], name: str, columns: int | None, words: tuple[str, ...]
) -> None:
    printed = shown(*words, environment=service, columns=columns)
    seen = Path(__file__).parent / "tables" / f"{name}.txt"
    assert steady(printed) == seen.read_text()


@pytest.mark.parametrize("columns", [80, 120, None])
def test_a_freeze_is_listed_by_the_name_of_its_job(
    service: dict[str, str], columns: int | None
) -> None:
    why = ("--why", "the disk is changed")
    printed = shown("freeze", "digits", *why, environment=service, columns=columns)
    lifted = shown("freeze", "--off", "digits", environment=service, columns=columns)
    assert steady(printed) == (
        "SCOPE  TARGET  BY     SINCE  WHY\njob    digits  admin  #####  the disk is changed\n"
    )
    assert "digits" not in lifted


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_each_job_has_one_line_that_fits_the_terminal(
    service: dict[str, str], columns: int, term: str
) -> None:
    lines = shown("jobs", environment=service | {"TERM": term}, columns=columns).splitlines()
    assert len(lines) == 1 + 9
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize(
    ("words", "columns"),
    [(("audit",), 40), (("audit",), 80), (("tokens",), 40), (("what-if", "digits"), 80)],
)
def test_every_other_table_fits_the_terminal_a_line_for_each_row(
    service: dict[str, str], words: tuple[str, ...], columns: int
) -> None:
    lines = shown(*words, environment=service, columns=columns).splitlines()
    rows = shown(*words, environment=service, columns=None).splitlines()
    assert len(lines) == len(rows) > 1
    assert max(map(len, lines)) <= columns


def test_wide_cuts_nothing_at_a_terminal_either(service: dict[str, str]) -> None:
    lines = shown("jobs", "-o", "wide", environment=service, columns=80).splitlines()
    assert (len(lines), "PROJECT" in lines[0]) == (1 + 9, True)
    assert next(line for line in lines if " tall-" in line).count("traceback") == 50


def test_a_job_whose_reason_is_long_keeps_it_whole_in_json(service: dict[str, str]) -> None:
    printed = shown("jobs", "-o", "json", environment=service, columns=80)
    reasons = {job["name"]: job["reason"] for job in json.loads(printed)}
    assert reasons["tall-with-a-name-of-many-words"].count("\n") == 49


def test_lists_come_in_the_order_that_is_asked_for(service: dict[str, str]) -> None:
    def printed(*words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            shown(*words, "-o", "json", environment=service, columns=None)
        )
        return found

    names = [job["name"] for job in printed("jobs", "--sort", "name")]
    assert names == sorted(names)
    assert [job["name"] for job in printed("jobs", "--sort", "-name")] == names[::-1]
    kinds = [view["plan"]["kind"] for view in printed("plans", "--sort", "kind")]
    assert kinds == sorted(kinds)
    nodes = [node["name"] for node in printed("nodes", "--sort", "-name")]
    assert nodes == sorted(nodes, reverse=True)
    actions = [entry["action"] for entry in printed("audit", "--sort", "action")]
    assert actions == sorted(actions)


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_what_is_printed_has_plain_spaces(service: dict[str, str], form: str) -> None:
    printed = [
        shown(*words, "-o", form, environment=service, columns=None)
        for words in (("jobs",), ("plans",), ("pool",), ("what-if", "digits"))
    ]
    assert {"\u202f", "\u00a0"}.isdisjoint("".join(printed))
