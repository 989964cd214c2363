"""Run parts one after the other, each in a process of its own, and say what was seen.

python -m tests.gpu [PART …]       all of them, or those named
python -m tests.gpu --list         their names
python -m tests.gpu --twin [PART]  on the CPU, what can be: it proves the parts, and nothing of CUDA
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import card
from tests.gpu.stage import ROOT, NotHere, Part, Stage

#: Seconds of all parts together, and exit code of a part that this machine cannot run.
TOGETHER_SECONDS, NOT_HERE = 480.0, 77


def main() -> int:
    """Returns the exit code: 0 where nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("part", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--twin", action="store_true", help="on the CPU")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for line in [] if options.here else card.versions():
        _say(line)
    why = card.cannot_run()
    if why and not (options.twin and why.startswith("no NVIDIA")):
        _say(why)
        return 0
    from tests.gpu.parts import PARTS  # late: the product may lack modules here

    named = {part.name: part for part in PARTS}
    if unknown := set(options.part) - named.keys():
        parser.error(f"no part is named {', '.join(sorted(unknown))}; --list names them")
    parts = [named[name] for name in options.part] or list(PARTS)
    if options.list:
        for part in parts:
            _say(f"{part.name}{' (a card only)' if part.card_only else ''}")
        return 0
    if options.here:
        return _here(parts[0], "cpu" if options.twin else "cuda")
    codes = _all(parts, twin=options.twin)
    if not options.twin:
        _say("Two cards would be needed for:")
        for line in card.TWO_CARDS:
            _say(f"  {line}")
    return 1 if any(code not in (0, NOT_HERE) for code in codes) else 0


def _all(parts: list[Part], *, twin: bool) -> list[int]:
    until, codes = time.monotonic() + TOGETHER_SECONDS, []
    for part in parts:
        began = time.monotonic()
        if twin and part.card_only:
            _say(f"-    {part.name}: needs a card")
            continue
        if began > until:
            _say(f"-    {part.name}: not run, the others took {TOGETHER_SECONDS:.0f} s")
            codes.append(1)
            continue
        code = _apart(part, twin)
        word = {0: "ok", NOT_HERE: "-"}.get(code, "FAILED")
        _say(f"{word:4} {part.name}, {time.monotonic() - began:.0f} s")
        codes.append(code)
    return codes


def _apart(part: Part, twin: bool) -> int:
    """Run one part in a process of its own; whatever is left of it is ended."""
    command = [sys.executable, "-m", "tests.gpu", "--here", *["--twin"] * twin, part.name]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(part.seconds)
    except subprocess.TimeoutExpired:
        _say(f"     {part.name} has not ended after {part.seconds:.0f} s")
        return 1
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # its stage ends what it started
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _here(part: Part, device: str) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = Path(tempfile.mkdtemp(prefix=f"gpu-{part.name}-"))
    try:
        seen = part.act(Stage(directory=directory, device=device))
    except NotHere as cannot:
        _say(f"     {cannot}")
        return NOT_HERE
    except AssertionError as wrong:
        _say(f"     {wrong}\n     evidence in {directory}")
        return 1
    _say(f"     {seen}")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
