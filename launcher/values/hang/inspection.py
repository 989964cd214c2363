"""Compares two examinations of silent workers, a few seconds apart, and decides if the workers make
no progress. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: A worker that uses more of a processor, or moves more bytes a second, does something.
_CPU_SHARE, _BYTES_PER_SECOND = 0.1, 1 << 20
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+) in (.+)$')
#: Of frames that wait for peers: torch's, where each backward pass may end so, and our session's.
_WAITING = ("torch/distributed/", "_engine_run_backward", "launcher/elastic/")
_SPIED = re.compile(r"^\s+(.+?) \((.+):(\d+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackLook:
    """An agent's measurements of one worker and of the worker's child processes, between two
    examinations.
    """

    rank: int
    #: Stacks of all threads, most recent call first; empty if none could be read.
    stacks: str = ""
    #: How they were had: ``py-spy``, ``faulthandler``, or why they were not.
    means: str = ""
    #: True if the main thread was at another place at the second look.
    moved: bool = False
    #: Processors used.
    cpu_share: float = 0.0
    #: Read and written, sockets and pipes included.
    bytes_per_second: float = 0.0
    #: As in /proc/<pid>/stat: S sleeps, D waits for a device, R runs, t is under a debugger.
    state: str = ""
    #: Place in the kernel that holds it, if known.
    kernel: str = ""
    #: Content of torch's flight recorder; empty if that is off.
    recorder: str = ""

    @property
    def busy(self) -> bool:
        """True if the worker is busy, although silent."""
        return (
            self.moved
            # A debugger holds it; or it would run, and the machine has no processor for it.
            or self.state in ("t", "R")
            or self.cpu_share > _CPU_SHARE
            or self.bytes_per_second > _BYTES_PER_SECOND
        )


def may_be_busy(looks: Sequence[StackLook], ranks: Iterable[int]) -> bool:
    """True if one of ``ranks`` is busy, or may be, because no agent has examined it.

    If an agent answers too late and has the only busy rank, the world must not be reported as hung.
    """
    return any(look.busy for look in looks) or bool(set(ranks) - {look.rank for look in looks})


def main_thread(stacks: str) -> tuple[str, ...]:
    """Return the main thread's frames, innermost first, as ``file:line function``.

    >>> main_thread('Thread 0x1 (most recent call first):\\n  File "a.py", line 3 in f')
    ('a.py:3 f',)
    """
    blocks = re.split(r"(?m)^(?=(?:Current thread|Thread) )", stacks)
    named = [block for block in blocks if "MainThread" in block.partition("\n")[0]]
    # faulthandler writes the newest thread first.
    last = named[0] if named else next((b for b in reversed(blocks) if "hread " in b[:16]), "")
    last = last or next((block for block in reversed(blocks) if block.strip()), "")
    frames = []
    for line in last.splitlines():
        if match := _FRAME.match(line):
            frames.append(f"{match[1]}:{match[2]} {match[3]}")
        elif match := _SPIED.match(line):
            frames.append(f"{match[2]}:{match[3]} {match[1]}")
    return tuple(frames)


def some_wait(looks: Iterable[StackLook]) -> bool:
    """True if one of these workers waits for other workers."""
    return any(waits_for_peers(main_thread(look.stacks)) for look in looks)


def waits_for_peers(frames: Sequence[str]) -> bool:
    """True if a main thread is inside a collective, or inside a backward pass that ends in a
    collective.
    """
    return any(sign in frame for frame in frames for sign in _WAITING)


def culprits(looks: Sequence[StackLook], suspects: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks for which the other ranks wait.

    If some ranks are inside a collective, these are the ranks outside the collective; else
    ``suspects``; else the ranks whose stacks differ from most other stacks.
    """
    stacks = {look.rank: main_thread(look.stacks) for look in looks if look.stacks}
    if len(looks) == 1:
        return (looks[0].rank,)
    waiting = {rank for rank, frames in stacks.items() if waits_for_peers(frames)}
    outside = sorted(stacks.keys() - waiting)
    if waiting and outside:
        return tuple(outside)
    return tuple(suspects) or _odd(stacks)


def collective(recorder: str) -> str:
    """Return the newest collective in a flight recorder's file; empty if there is none.

    >>> collective('{"entries": [{"profiling_name": "gloo:all_reduce", "collective_seq_id": 7}]}')
    'gloo:all_reduce, number 7'
    """
    try:
        entry = json.loads(recorder)["entries"][-1]
        return f"{entry['profiling_name']}, number {entry['collective_seq_id']}"
    except (ValueError, KeyError, IndexError, TypeError):
        return ""


def place(look: StackLook | None) -> str:
    """Return in a few words which code the worker runs now; empty if unknown."""
    frames = main_thread(look.stacks) if look is not None else ()
    if frames:
        own = [f for f in frames if "-packages/" not in f and "/lib/python" not in f]
        at = (own or list(frames))[0]
        path, _, name = at.partition(" ")
        inner = frames[0].partition(" ")[2]
        called = f", which called {inner}" if own and inner != name else ""
        return f"{path.rpartition('/')[2]} in {name}{called}"
    if look is not None and look.kernel:
        return f"{look.kernel} in the kernel"
    return ""


def _odd(stacks: Mapping[int, Sequence[str]]) -> tuple[int, ...]:
    kinds: dict[tuple[str, ...], list[int]] = {}
    for rank, frames in stacks.items():
        kinds.setdefault(tuple(frame.partition(" ")[2] for frame in frames), []).append(rank)
    most = max(kinds.values(), key=len, default=[])
    others = sorted(rank for ranks in kinds.values() if ranks is not most for rank in ranks)
    return tuple(others) if len(most) > len(others) else ()
