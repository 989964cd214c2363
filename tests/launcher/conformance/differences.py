"""Where brain-run differs from torchrun on purpose. What is not explained here is a fault.

docs/known-limitations.md and docs/guides/launcher.md tell people the same.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Explained:
    """A difference that is meant: regular expressions that have to match in full."""

    where: str
    why: str
    case: str = ".*"
    theirs: str = ".*"
    ours: str = ".*"

    def covers(self, found: "Found") -> bool:
        """Whether it is this one."""
        pairs = (
            (self.case, found.case),
            (self.where, found.where),
            (self.theirs, found.theirs),
            (self.ours, found.ours),
        )
        return all(re.fullmatch(pattern, said, re.DOTALL) for pattern, said in pairs)


@dataclass(frozen=True)
class Found:
    """One place in which two observations of a case differ; values as JSON, empty = not there."""

    case: str
    where: str
    theirs: str
    ours: str

    @property
    def why(self) -> str | None:
        """The explanation, None where there is none."""
        return next((each.why for each in EXPLAINED if each.covers(self)), None)


EXPLAINED = (
    Explained(
        where="workers/.*/environment/TORCHELASTIC_USE_AGENT_STORE",
        why="rank 0 keeps the store, so that it ends with its world",
        theirs='"True"',
        ours='"False"',
    ),
    Explained(
        case="static, .*|static alone",
        where="workers/.*/environment/MASTER_PORT",
        why="agents meet at --master-port; rank 0 keeps the workers' store at one of its own",
        theirs='"<port>"',
        ours='"…"',
    ),
    Explained(
        case="c10d, .*",
        where="workers/.*/environment/MASTER_ADDR",
        why="an address that other nodes can reach, where torchrun takes the machine's name",
        theirs='"…"',
    ),
    Explained(
        where="exit_codes",
        why="brain-run ends with the code of the worker that failed first, torchrun always with 1",
        theirs=r"\[1\]",
        ours=r"\[([3-9]|\d\d+|2)\]",
        case="failure|killed|ended by .*|left .*|aborted|one of .*|failed too often|deleted .*",
    ),
    Explained(
        case="left with a tuple",
        where="(exit_codes|out|err|report)(: .*)?",
        why="a handler makes the tuple the arguments of SystemExit, before Python 3.12",
    ),
    Explained(
        where="exit_codes",
        why="a command line that cannot be used ends with 2 and a sentence, before anything starts",
        theirs=r"\[1\]",
        ours=r"\[2\]",
    ),
    Explained(
        case="no such script",
        where="report: .*",
        why="a command line that cannot be used ends with 2 and a sentence, before anything starts",
        ours="",
    ),
    Explained(
        where="exit_codes",
        case="launcher .*",
        why="a launcher that was signalled ends with 128 + the signal, torchrun with 1",
        theirs=r"\[1\]",
        ours=r"\[1\d\d\]",
    ),
    Explained(
        case="shortened before both spellings",
        where=".*",
        why="a short form of both spellings of one flag is that flag, as with newer Pythons",
    ),
    Explained(
        case="run path",
        where="workers/.*/strangers",
        why="torchrun imports its backends, ours among them, in the very process of such a script",
        theirs=r'\["launcher", "launcher.rendezvous"\]',
        ours=r"\[\]",
    ),
    Explained(case="help", where="(out|err)(: .*)?", why="its own words, and flags of its own"),
    Explained(
        case="left with a text|raised|a syntax error",
        where="report:   traceback : .*",
        why="where a worker left no error file, the report has its last words",
    ),
    Explained(
        case="no such module",
        where="report: .*nowhere FAILED",
        why="a module is shown as it was given, with -m",
    ),
    Explained(
        case=".*nodes.*|group of processes",
        where="workers/.*/environment/TORCHINDUCTOR_CACHE_DIR",
        why="variables that modules set when they are imported ahead are there from the start",
        theirs="",
    ),
    Explained(
        case="open end",
        where="out: ",
        why="a last line without an end is ended on the console, or the next worker's joins it",
        theirs="",
    ),
    Explained(
        case="bytes",
        where=r"out: \[default0\]:before .*",
        why="what is no UTF-8 reaches the console as it was written, torchrun replaces it",
    ),
    Explained(
        case="interpreter.*",
        where="out: descriptors: .*",
        why="what watches a worker keeps descriptors in it: the control file, a socket",
        theirs="1|",
    ),
    Explained(
        case="recorded for whoever started us",
        where="report:   error_file: .*",
        why="without --log-dir nothing is left in /tmp",
        theirs="1|",
    ),
)


def compare(case: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Found]:
    """Everything in which two observations differ."""
    left, right = dict(_leaves(theirs)), dict(_leaves(ours))
    return [
        Found(case, where, left.get(where, ""), right.get(where, ""))
        for where in sorted(left.keys() | right.keys())
        if left.get(where) != right.get(where)
    ]


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Places and what stands there; lines are places of their own, so that each is told apart."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{where}/{key}" if where else str(key))
    elif isinstance(value, list) and not where.startswith("workers/") and where != "exit_codes":
        for line, count in Counter(value).items():
            yield f"{where}: {line}", str(count)
    else:
        yield where, json.dumps(value, ensure_ascii=False)
