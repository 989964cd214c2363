"""``python -m tests.launcher.guide`` writes the tables of flags into docs/guides/launcher.md."""

from pathlib import Path

from launcher.command import flags
from launcher.command.torchrun import description

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "launcher.md"
BEGIN, END = (
    "<!-- flags: written by `python -m tests.launcher.guide` -->\n",
    "<!-- end of flags -->",
)


def tables() -> str:
    """The flags that torchrun has not, as the parser knows them."""
    groups = {"dlrover-run": flags.DLROVER, "only here": flags.OURS}
    return "".join(
        f"\n| {title} | |\n|---|---|\n" + "".join(map(_row, known))
        for title, known in groups.items()
    )


def _row(flag: description.Flag) -> str:
    told = f"{flag.help} *{flag.idle[0].upper()}{flag.idle[1:]}.*" if flag.idle else flag.help
    variable = flag.environment or ""
    given = f" (`{variable}`)" if variable and not variable.startswith("PET_") else ""
    return f"| `{flag.names[0]}`{given} | {told.replace('|', chr(92) + '|')} |\n"


def main() -> None:
    """Write them."""
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(f"{before}{BEGIN}{tables()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
