"""``python -m tests.kubernetes.real``: the Kubernetes suite on a real cluster.

On the one that ``BRAIN_TEST_KUBECONFIG`` names. Where it names none, on emulators in processes of
their own that stand in for one: first bare, as an envtest is, then with controllers.
"""

import os
import subprocess
import sys

from tests.kubernetes.clusters import VARIABLE, real_kubeconfig

SUITE = ("tests/kubernetes", "tests/contracts/test_job_backend.py")


def run(arguments: list[str]) -> int:
    """Run the suite, or what ``arguments`` names instead; returns pytest's exit code."""
    named = [each for each in arguments if not each.startswith("-")]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *arguments]
    return subprocess.run([*command, *(() if named else SUITE)], check=False).returncode


def stand_in(arguments: list[str], *mode: str) -> int:
    """Run it on an emulator that knows no kinds of ours yet."""
    serve = [sys.executable, "-m", "tests.kubernetes.apiserver", "--definitions", *mode]
    with subprocess.Popen(
        serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as emulator:
        assert emulator.stdin is not None
        assert emulator.stdout is not None
        os.environ[VARIABLE] = emulator.stdout.readline().split()[1]
        try:
            return run(arguments)
        finally:
            del os.environ[VARIABLE]
            emulator.stdin.close()


def main() -> int:
    """Return the first exit code that is not 0."""
    arguments = sys.argv[1:]
    if real_kubeconfig() is not None:
        return run(arguments)
    print(f"{VARIABLE} names no cluster: an emulator in a process of its own stands in")
    return stand_in(arguments, "--bare") or stand_in(arguments)


if __name__ == "__main__":
    sys.exit(main())
