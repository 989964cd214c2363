"""Rows of a benchmark: printed as a table, stored as JSON, and shown in ``RESULTS.md``."""

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
    """One measured value, with the value of a peer (another program) and a bar (a required limit),
    if there are any.
    """

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
        """Return the peer's value divided by ours; above 1, ours is better."""
        return self.peer_value / self.value if self.peer_value and self.value else None

    @property
    def met(self) -> bool:
        """Return True if the row meets its bars, or has no bars. A row with a bar that was not
        measured does not meet the bar.
        """
        small = self.bar is None or (self.value is not None and self.value <= self.bar)
        far = self.ratio_bar is None or (self.ratio is not None and self.ratio >= self.ratio_bar)
        return small and far

    @property
    def bars(self) -> str:
        """Return the bars in the form in which they are printed; empty if the row has none."""
        largest = None if self.bar is None else f"≤ {self.bar:g}"
        smallest = None if self.ratio_bar is None else f"≥ {self.ratio_bar:g}×"
        return ", ".join(filter(None, (smallest, largest)))


def publish(name: str, title: str, rows: Sequence[Row], more: str = "", command: str = "") -> None:
    """Print ``rows``, store them as JSON and write them to ``RESULTS.md``, with the Markdown
    ``more`` below them; exit with 1 if a bar is not met.

    ``command`` is named as the command that wrote the rows; if it is empty, ``make bench-<name>``
    is named.
    """
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
    """Return the rows as a Markdown table."""
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
