"""A row says whether its bars are met."""

from benchmarks.report import Row, markdown


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
