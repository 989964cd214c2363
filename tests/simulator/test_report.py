"""The page is one file, well-formed, with every job in it, and looks the same for the same seed."""

import re
from xml.etree import ElementTree

from brain.cli.simulate import styles
from brain.simulator.report import figures, page
from brain.simulator.report.page import rows
from brain.simulator.run import PolicyOutcome
from brain.typeset import change
from tests.simulator import building

JOBS = [building.arrival(f"job-{index}", 60.0 * index, wanted=2) for index in range(5)]


def outcomes() -> list[PolicyOutcome]:
    return [building.simulated(JOBS, policy) for policy in ("fifo", "optimus")]


def drawn(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_it_fetches_nothing_and_runs_nothing():
    text = page(outcomes(), title="workload.csv", styles=styles())
    assert not re.search(r"<script|<link|url\(|@import|https?://|style=", text)


def test_its_plots_are_well_formed_and_say_what_they_show():
    plots = [svg for svg in drawn(page(outcomes(), title="w", styles="")) if svg.get("role")]
    assert len(plots) == 1 + 2 * 2
    assert all(svg.get("aria-label") for svg in plots)


def test_every_job_has_a_row_in_who_ran_when():
    text = page(outcomes(), title="w", styles="")
    assert len(re.findall(r"<title>job-\d ", text)) == 2 * len(JOBS)


def test_the_same_seed_draws_the_same_page():
    assert page(outcomes(), title="w", styles="") == page(outcomes(), title="w", styles="")


def test_names_of_people_are_text_and_no_markup():
    jobs = [building.arrival("<b>&", wanted=2)]
    text = page([building.simulated(jobs, "fifo")], title="<i>", styles="")
    assert "<b>&" not in text
    assert "<i>" not in text


def test_more_changes_than_pixels_are_drawn_as_means():
    many = [building.arrival(f"j{index}", 30.0 * index, scale=0.05) for index in range(900)]
    outcome = building.simulated(many, "fifo")
    plot = figures.use(outcome, outcome.jobs[-1].finished)
    assert sum(len(stays.stays) for stays in outcome.jobs) >= 900
    assert plot.count(" L") < 2500


def test_where_the_oracle_was_asked_the_others_are_held_against_it():
    both = [building.simulated(JOBS, policy) for policy in ("fifo", "oracle")]
    behind = both[0].summary.jct_mean / both[1].summary.jct_mean - 1
    said = dict(rows(both))["Mean against the oracle's"]
    assert said == [change(behind), "—"]
    assert "Mean against the oracle's" not in dict(rows(outcomes()))
