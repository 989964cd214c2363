"""A row says whether its bars are met, and stands in the published table."""

import json
from dataclasses import fields

from benchmarks.report import HERE, Row, markdown


def row(
    value: float | None,
    *,
    peer: float | None = None,
    bar: float | None = None,
    ratio_bar: float | None = None,
) -> Row:
    """A row of seconds."""
    return Row(
        metric="m", value=value, unit="s", peer="p", peer_value=peer, bar=bar, ratio_bar=ratio_bar
    )


def test_a_bar_is_the_largest_value() -> None:
    assert row(0.4, bar=0.4).met
    assert not row(0.5, bar=0.4).met


def test_a_ratio_bar_is_the_smallest_ratio_to_the_peer() -> None:
    assert row(0.5, peer=6.0, ratio_bar=12).met
    assert not row(0.6, peer=6.0, ratio_bar=12).met


def test_what_was_not_measured_meets_no_bar() -> None:
    assert not row(None, bar=1).met
    assert not row(1.0, ratio_bar=2).met
    assert row(None).met


def test_a_table_shows_both_bars() -> None:
    assert "| ≥ 12×, ≤ 0.4 | **no** |" in markdown([row(0.5, peer=6.0, bar=0.4, ratio_bar=12)])


def test_every_stored_row_stands_in_the_published_table_of_its_benchmark() -> None:
    text = (HERE / "RESULTS.md").read_text()
    names = {field.name for field in fields(Row)}
    for stored in sorted((HERE / "results").glob("*.json")):
        found = [one for one in json.loads(stored.read_text()) if "metric" in one]
        rows = [Row(**{key: one[key] for key in one.keys() & names}) for one in found]
        _, _, section = text.partition(f"<!-- {stored.stem} -->")
        table = section.partition(f"<!-- /{stored.stem} -->")[0].splitlines()
        missing = [line for line in markdown(rows).splitlines()[2:] if line not in table]
        assert not missing, stored.name
