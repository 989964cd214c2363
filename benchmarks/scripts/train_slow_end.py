"""``train.py`` with a handler of SIGTERM that takes as long as saving a large checkpoint."""

import signal
import sys
import time

import train

SECONDS = 10.0


def end(signum: int, _: object) -> None:
    """Wait as long as a save takes; a launcher cannot tell the difference."""
    signal.signal(signum, signal.SIG_IGN)  # asked twice, one save is enough
    trace = train.Trace()
    trace.tell("ending")
    time.sleep(SECONDS)
    trace.tell("ended")
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    train.main()
