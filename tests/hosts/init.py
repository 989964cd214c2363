"""Process 1 of a host: starts what it is told to, reaps, and takes everything with it as it ends.

Orders come as lines of JSON on standard input, news go out on standard output. Standard library
only; run with ``-I -S``. When the input ends, so does the host: nobody has to clean up after a test
that was killed.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys


def main() -> None:
    """Set the host up, then obey."""
    told = json.loads(sys.argv[1])
    socket.sethostname(told["name"])
    for line in told["setup"]:
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    awake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    say(ready=True)
    obey(awake)


def obey(awake: int) -> None:
    """Serve orders and exits until the orders end."""
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(awake, selectors.EVENT_READ)
    started: dict[int, int] = {}
    text = b""
    while True:
        for key, _ in selector.select():
            more = os.read(key.fd, 65536)
            if key.fd == 0:
                if not more:
                    return
                *lines, text = (text + more).split(b"\n")
                for line in lines:
                    order(json.loads(line), started)
        reap(started)


def order(told: "dict[str, object]", started: "dict[int, int]") -> None:
    """Start a program, or send one a signal."""
    key = told["key"]
    if "signal" in told:
        pid = next((pid for pid, at in started.items() if at == key), None)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, told["signal"])
        return
    with open(told["log"], "ab") as log:
        made = subprocess.Popen(
            told["argv"],
            env=told["environment"],
            cwd=told["directory"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    made.returncode = 0  # it is reaped here, never by the object's own means
    started[made.pid] = key
    say(key=key, pid=made.pid)


def reap(started: "dict[int, int]") -> None:
    """Take leave of whatever ended, and tell of what was started here."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in started:
            say(key=started.pop(pid), code=os.waitstatus_to_exitcode(status))


def say(**news: object) -> None:
    """One line of news."""
    os.write(1, json.dumps(news).encode() + b"\n")


main()
