"""Rows of a benchmark: printed as a table, kept as JSON, shown in ``RESULTS.md``."""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, beside its peer and its bar where there are such."""

    metric: str
    #: None where it was not measured; ``note`` then says why.
    value: float | None
    unit: str
    peer: str = ""
    peer_value: float | None = None
    #: The largest value allowed, or None.
    bar: float | None = None
    #: The smallest ratio to the peer allowed, or None.
    ratio_bar: float | None = None
    #: What has to be known to read the value: spread, number of runs, a reason.
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The peer's value over ours; above 1 we are better."""
        return self.peer_value / self.value if self.peer_value and self.value else None

    @property
    def met(self) -> bool:
        """Whether the bars, where there are any, are met; what was not measured meets none."""
        small = self.bar is None or (self.value is not None and self.value <= self.bar)
        far = self.ratio_bar is None or (self.ratio is not None and self.ratio >= self.ratio_bar)
        return small and far

    @property
    def bars(self) -> str:
        """The bars as a person reads them; empty where there are none."""
        largest = None if self.bar is None else f"≤ {self.bar:g}"
        smallest = None if self.ratio_bar is None else f"≥ {self.ratio_bar:g}×"
        return ", ".join(filter(None, (smallest, largest)))


def publish(name: str, title: str, rows: Sequence[Row], more: str = "", command: str = "") -> None:
    """Print, store and show ``rows``, and ``more`` Markdown below them; end the process with 1
    where a bar is not met. ``command`` is said to have written them, ``make bench-<name>`` where
    it is empty."""
    table = markdown(rows) + (f"\n\n{more.strip()}" if more else "")
    sys.stdout.write(f"{title}\n\n{table}\n")
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    record = [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows]
    (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    command = command or f"make bench-{name}"
    stamp = (
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}"
    )
    _replace_section(name, f"## {title}\n\n{stamp}; `{command}`\n\n{table}\n")
    if not all(row.met for row in rows):
        sys.exit(1)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    head = ("metric", "value", "unit", "peer", "peer value", "ratio", "bar", "met")
    body = [
        (
            f"{row.metric}; {row.note}" if row.note else row.metric,
            "—" if row.value is None else f"{row.value:.4g}",
            row.unit,
            row.peer or "—",
            "—" if row.peer_value is None else f"{row.peer_value:.4g}",
            "—" if row.ratio is None else f"{row.ratio:.3g}×",
            row.bars or "—",
            "**no**" if not row.met else "—" if row.value is None else "yes",
        )
        for row in rows
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, *body]]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def _replace_section(name: str, text: str) -> None:
    path = HERE / "RESULTS.md"
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    old = (
        path.read_text()
        if path.exists()
        else "# Results\n\nEach section is written by its command.\n"
    )
    if begin in old:
        head, rest = old.split(begin)
        old = head.rstrip("\n") + "\n" + rest.split(end, 1)[1]
    path.write_text(old.rstrip("\n") + f"\n\n{begin}{text}{end}")
