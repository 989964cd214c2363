"""A program that writes workers' saves from memory to storage. It uses only the standard library.

python -m launcher.ram_checkpoint.flusher <directory>
    makes files in the agent's shared memory durable. At each change it prints a line of JSON with
    the saves that are not on storage yet. A number on standard input means that a worker
    has failed. The program then also writes to storage the steps that were meant to stay in memory,
    and prints the number once they are there. When standard input ends (the agent closed it, or was
    killed), the program finishes accepted saves, removes the directory and ends.

docs/reference/protocols.md describes the contents of the directory. All state is in the file
system, so another flusher continues after one that was killed.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from launcher.ram_checkpoint.slots import Slot, alive, remove
from launcher.ram_checkpoint.storage import StepStorage
from launcher.values.ram_checkpoint import parts

#: Seconds between looks when nobody rings, and that a name may not be found.
LOOK_SECONDS, LOST_SECONDS = 0.25, 1.0
#: Seconds that storage may refuse a save whose worker has ended before it is given up.
GIVE_UP_SECONDS = 10.0
#: Seconds that workers may outlive their agent.
ORPHANS_SECONDS = 15.0
#: Where processors are short, what trains, or is about to, comes first; storage is not starved.
_NICENESS = 10


class Flusher:
    """Writes the files in one directory of shared memory to storage, in a loop."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.slots: dict[str, Slot] = {}
        self.lost: list[str] = []
        self.reported = ""
        self.storing, self.behind = StepStorage(Path(root)), False
        #: Numbers that the agent sent, and that were answered.
        self.asked = self.answered = 0
        # Without it no flusher would ever finish what was left here.
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(root, "steps"))
        self.bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.bell.setblocking(False)
        bell = os.path.join(root, "bell")
        remove(bell)
        self.bell.bind(bell)

    def run(self) -> None:
        """Write until the agent is gone and all saves are on storage."""
        gone_since = None
        while True:
            busy = self.turn()
            self.behind = self.storing.turn(breakpoint=self.asked != self.answered)
            self.answered = self.answered if self.behind else self.asked
            self.report()
            if gone_since is not None and not busy and self.finished(gone_since):
                self.report()
                break
            listened = [self.bell] if gone_since is not None else [self.bell, sys.stdin]
            pause = 0.01 if busy else 0.05 if self.behind or gone_since else LOOK_SECONDS
            ready, _, _ = select.select(listened, [], [], pause)
            if self.bell in ready:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self.bell.recv(16)
            if sys.stdin in ready:
                told = os.read(0, 4096)
                self.asked = int(told.split()[-1]) if told else self.asked
                gone_since = None if told else time.monotonic()
        # Away first: a worker that outlives its agent must not add to what is being removed.
        gone = gone_name(self.root)
        os.rename(self.root, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def turn(self) -> bool:
        """Advance every slot by one stage; return True if a save is not on storage yet."""
        names = sorted(n for n in os.listdir(self.root) if n.startswith(("slot-", "writing-")))
        for name in names:
            path = os.path.join(self.root, name)
            if name.startswith("writing-"):
                self.sweep(path)
            elif path not in self.slots:
                with contextlib.suppress(OSError, ValueError):
                    self.slots[path] = Slot(path)
        for entry in os.listdir(os.path.join(self.root, "steps")):
            if entry.startswith(".writing-") and not alive(int(entry.rpartition("-")[2])):
                shutil.rmtree(os.path.join(self.root, "steps", entry), ignore_errors=True)
        for path, slot in list(self.slots.items()):
            if not os.path.isdir(path) or self.persist(slot):
                del self.slots[path]
        return bool(self.slots)

    def sweep(self, writing: str) -> None:
        """Remove unfinished saves of ended workers."""
        if alive(int(os.path.basename(writing).split("-")[1])):
            return
        with contextlib.suppress(OSError, ValueError), open(f"{writing}/manifest") as file:
            remove(json.load(file)["temporary"])
        shutil.rmtree(writing, ignore_errors=True)

    def persist(self, slot: Slot) -> bool:
        """Try to make a slot durable; return True if the slot is finished."""
        now = time.monotonic()
        if now < slot.next_try:
            return False
        dead, accepted = not alive(slot.pid), slot.accepted is not None
        if not accepted and slot.name() is None:
            if dead:
                slot.clear()
            return dead
        try:
            if slot.land():
                slot.retire()
                return True
            done = self.forgotten(slot, now)
        except OSError as error:
            slot.refuse(error)
            done = dead and now - (slot.refused_since or now) > GIVE_UP_SECONDS
            if done:
                self.lost.append(f"{slot.first}: {error.strerror}")
                with contextlib.suppress(OSError):  # storage may refuse that, too
                    slot.give_up()
        if done:
            slot.clear()
        return done

    def forgotten(self, slot: Slot, now: float) -> bool:
        """True if no name in the file system links to the slot any more."""
        if any("removed" in told for told in slot.told()):
            return True
        slot.missed_since = slot.missed_since or now
        if now - slot.missed_since < LOST_SECONDS:
            return False
        self.lost.append(f"{slot.first} was deleted before the file was written to storage")
        return True

    def finished(self, since: float) -> bool:
        """True if no worker can save any more, and no pieces from other agents are outstanding."""
        if not self.deserted(since) or (self.behind and not self.storing.stuck):
            return False
        self.lost += [self.storing.stuck] if self.behind else []
        return True

    def deserted(self, since: float) -> bool:
        """True if all workers that could still save have ended.

        Also True if workers have outlived the agent for too long.
        """
        if time.monotonic() - since > ORPHANS_SECONDS:
            return True
        for name in os.listdir(self.root):
            if name.startswith("worker-"):
                with (
                    contextlib.suppress(FileNotFoundError),
                    open(os.path.join(self.root, name)) as file,
                ):
                    if alive(int(name.split("-")[1]), file.read()):
                        return False
        return True

    def off(self) -> str:
        """Return the reason why a worker saves directly to storage; empty if no worker does."""
        try:
            with open(os.path.join(self.root, "off")) as file:
                return str(json.load(file))
        except (OSError, ValueError):
            return ""

    def report(self) -> None:
        """Report to the agent which saves are ahead of storage, if they have changed."""
        ahead = [
            {
                "pid": slot.pid,
                "path": slot.first,
                "bytes": slot.manifest["bytes"],
                "accepted": slot.accepted,
                "refused": slot.refused_since is not None,
            }
            for slot in self.slots.values()
        ]
        held = [part for part in parts.found(Path(self.root, "steps")) if not part.copied]
        line = json.dumps(
            {
                "ahead": ahead,
                "lost": self.lost,
                "steps": sorted({part.key.step for part in held}),
                "behind": self.behind,
                "answered": self.answered,
                "off": self.off(),
                "accepted": max((part.accepted for part in held), default=None),
            }
        )
        if line != self.reported:
            self.reported = line
            with contextlib.suppress(OSError):  # the agent is gone
                os.write(1, line.encode() + b"\n")


def gone_name(root: str) -> str:
    """Return the name that a directory of shared memory has while it is being removed."""
    above, name = os.path.split(root)
    return os.path.join(above, f".gone-{name}")


def held(root: str) -> bool:
    """True if an agent or a flusher holds the lock of a directory of shared memory."""
    try:
        descriptor = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _step_back() -> None:
    """Give way to other processes; Linux may weigh sessions instead of processes."""
    os.nice(_NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as session:
        session.write(str(_NICENESS))


def main(root: str) -> None:
    """Serve one directory, whose lock this process inherits or can take."""
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(asked, signal.SIG_IGN)
    _step_back()
    try:
        Flusher(root).run()
    except FileNotFoundError:
        if os.path.isdir(root):
            raise
        # Another one has finished it.


if __name__ == "__main__":
    main(sys.argv[1])
