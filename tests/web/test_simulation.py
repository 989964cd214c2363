"""The page of a simulation, opened from a file: accessible in both themes, on a phone, too."""

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser

from brain.cli.simulate import styles
from brain.simulator.report import page
from tests.simulator import building


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    jobs = [building.arrival(f"job-{index}", 60.0 * index, wanted=2) for index in range(6)]
    outcomes = [building.simulated(jobs, policy) for policy in ("fifo", "optimus", "tiresias")]
    made = tmp_path_factory.mktemp("report") / "simulation.html"
    made.write_text(page(outcomes, title="workload.csv on cluster.yaml", styles=styles()))
    return made


@pytest.mark.parametrize("width", [1240, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_report_is_accessible_and_fits(
    browser: Browser, report: Path, theme: Literal["light", "dark"], width: int
) -> None:
    profile = browser.new_context(
        color_scheme=theme, viewport={"width": width, "height": 900}, offline=True
    )
    shown = profile.new_page()
    complaints: list[str] = []
    shown.on("console", lambda said: complaints.append(said.text))
    shown.goto(report.as_uri())
    shown.get_by_text("View as table").click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(shown).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    assert complaints == []
    profile.close()
