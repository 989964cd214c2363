"""``python -m tests.simulator.guide`` writes the table of columns into docs/guides/simulator.md."""

from pathlib import Path

from brain.simulator.workload import COLUMNS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulator.md"
BEGIN, END = (
    "<!-- columns: written by `python -m tests.simulator.guide` -->\n",
    "<!-- end of columns -->",
)
_NEEDED = ("name", "time", "application")


def table() -> str:
    """The columns of a workload, as its reader knows them."""
    rows = "".join(
        f"| `{name}`{' (needed)' if name in _NEEDED else ''} | {about} |\n"
        for name, about in COLUMNS.items()
    )
    return f"\n| column | what it holds |\n|---|---|\n{rows}\n"


def main() -> None:
    """Write it."""
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
