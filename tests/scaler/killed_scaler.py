"""One pass of the scaler that kills itself at the N-th thing it does to the system.

    killed_scaler.py <home> <N>

Exits 0 where the pass was over before. It uses Python's audit events, so the scaler has no part
in it: every mkdir, open, rename and fork below the state directory counts.
"""

import os
import signal
import sys
from pathlib import Path

from brain.types.resources import Resources
from scaler.local import LocalBackend, LocalMachine
from scaler.reconcile import Start, decide
from tests.scaler.wished import AGENT, NOW, order, wish

HOME, AT = Path(sys.argv[1]), int(sys.argv[2])
EVENTS = {"os.mkdir", "open", "os.rename", "subprocess.Popen", "fcntl.flock", "os.fork"}
done = 0


def count(event: str, arguments: tuple[object, ...]) -> None:
    global done
    if event in EVENTS and "cpython" not in str(arguments[0]):
        done += 1
        if done == AT:
            os.kill(os.getpid(), signal.SIGKILL)


machine = LocalMachine(capacity=Resources(cpu_millis=4000, memory_bytes=2**33))
backend = LocalBackend(HOME, measure=lambda: machine, name="here", agent=AGENT)
asked = order(wish(1))
sys.addaudithook(count)
for action in decide(asked, backend.observe(wish().job, NOW), NOW):
    if isinstance(action, Start):
        backend.start(wish(1), action.replica, {}, NOW)
os._exit(0)
