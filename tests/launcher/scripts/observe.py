"""A worker that writes down what it sees, prints a line on each stream, and ends as told."""

import json
import os
import signal
import sys

SEEN = {
    "environment": dict(os.environ),
    "argv": sys.argv,
    "path": sys.path,
    "directory": os.getcwd(),
    "main": __name__,
    "file": os.path.basename(__file__),
    "package": __package__,
    "unbuffered": sys.stdout.line_buffering or sys.stdout.write_through,
    "strangers": sorted(
        name for name in sys.modules if name.split(".")[0] in ("brain", "collectors", "launcher")
    ),
    "sitecustomize": "sitecustomize" in sys.modules,
}


def main() -> None:
    rank = os.environ["RANK"]
    with open(os.path.join(os.environ["SEEN"], f"{rank}.json"), "w") as file:
        json.dump(SEEN, file)
    # In one piece each, or two workers' lines mix.
    os.write(1, f"out {rank}\n".encode())
    os.write(2, f"err {rank}\n".encode())
    if "--fail" in sys.argv and rank == "0":
        sys.exit(7)
    if "--die" in sys.argv and rank == "0":
        os.kill(os.getpid(), signal.SIGKILL)


main()
