"""The published counts of slow tests are those of pytest's report."""

from pathlib import Path

import pytest

from benchmarks.slow_tests import by_file, table

REPORT = """<testsuites><testsuite>
<testcase classname="tests.end_to_end.test_loop" name="a"/>
<testcase classname="tests.end_to_end.test_loop" name="b"><failure>why</failure></testcase>
<testcase classname="tests.chaos.test_chaos" name="c"><skipped>why</skipped></testcase>
<testcase classname="tests.chaos.test_chaos" name="d"><error>why</error></testcase>
</testsuite></testsuites>"""


def test_failures_of_tests_and_of_fixtures_are_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    assert table(by_file(report)).splitlines()[2:] == [
        "| `tests/chaos/test_chaos.py` | 0 | 1 | 1 |",
        "| `tests/end_to_end/test_loop.py` | 1 | 1 | 0 |",
    ]


def test_a_run_without_tests_is_an_error(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("<testsuites/>")

    with pytest.raises(SystemExit, match="no slow test ran"):
        by_file(report)
