"""An agent that follows the directory protocol and does nothing else.

``FAKE_AGENT`` says what else it does: ``mute`` dies without a word, ``deaf`` ignores SIGTERM,
``slow`` takes its lock once ``go`` is there, ``finish`` succeeds at once, ``linger`` fails, and
takes its time to end after it let go of its lock. Without it: leaves when asked.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path


def write(path: Path, value: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.rename(path)


def end(folder: Path, how: str) -> None:
    at = datetime.now(UTC).isoformat()
    write(folder / "exit.json", {"exit": how, "exit_code": 0, "detail": "", "at": at})
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replica-dir", type=Path, required=True)
    folder = parser.parse_args().replica_dir
    does = os.environ.get("FAKE_AGENT", "")
    if does == "mute":
        sys.exit("no such interpreter")
    if does == "slow":
        while not (folder / "go").exists():
            time.sleep(0.02)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(75)
    with (folder / "starts").open("a") as starts:
        print(os.getpid(), file=starts)
    # Blocked before anybody can know of us, so that no signal is ever too early.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    state = {"pid": os.getpid(), "started_ticks": ticks, "generation": 0, "address": ""}
    write(folder / "state.json", state | {"phase": "waiting"})
    if does == "linger":
        os.close(lock)
        (folder / "let-go").touch()
        signal.sigwait({signal.SIGTERM})
        sys.exit(9)
    if does == "finish":
        end(folder, "succeeded")
    while signal.sigwait({signal.SIGTERM}) and does == "deaf":
        pass
    end(folder, "left")


if __name__ == "__main__":
    main()
