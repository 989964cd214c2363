"""What a part is given: a place of its own, a device, and ``brain-run`` to start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import Patience

ROOT = Path(__file__).parents[2]


class NotHere(Exception):
    """This machine lacks what a part needs; the text is one sentence."""


def told(output: str, words: str) -> list[str]:
    """What lines say that begin with these words.

    >>> told("first use 20\\nfirst\\nfirst use", "first use")
    ['20', '']
    """
    lines = output.splitlines()
    return [line[len(words) + 1 :] for line in lines if f"{line} ".startswith(f"{words} ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One ``brain-run`` that has ended."""

    code: int
    output: str

    def told(self, words: str) -> list[str]:
        """What lines say that begin with these words."""
        return told(self.output, words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A ``brain-run`` that may still run."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def output(self) -> str:
        """What it and its workers have said so far."""
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> Run:
        """Its end."""
        try:
            return Run(code=self.process.wait(seconds), output=self.output)
        except subprocess.TimeoutExpired:
            text = f"brain-run has not ended after {seconds:.0f} s\n{self.output[-4000:]}"
            raise AssertionError(text) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing to prove; ``act`` returns a sentence of what was seen."""

    name: str
    act: "Callable[[Stage], str]"
    #: Only a card can do it; others have a twin on the CPU that proves the part itself.
    card_only: bool = False
    seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a part plays."""

    directory: Path
    #: ``cuda``, or ``cpu`` for a twin.
    device: str

    @property
    def card(self) -> bool:
        """Whether it is no twin."""
        return self.device == "cuda"

    def write(self, name: str, text: str) -> Path:
        """A file of the part's own."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, script: str, *flags: str, seconds: float = 100.0, **environment: str) -> Run:
        """Run a script under ``brain-run`` to its end."""
        with self.started(script, *flags, **environment) as agent:
            return agent.wait(seconds)

    @contextmanager
    def started(self, script: str, *flags: str, **environment: str) -> Iterator[Agent]:
        """Run one meanwhile; it is ended with its workers at the latest when the block ends."""
        self.write("train.py", script)
        paths = [str(ROOT), str(self.directory / "lib"), os.environ.get("PYTHONPATH", "")]
        told = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "BRAIN_HOME": str(self.directory / "home"),
            "DEVICE": self.device,
        }
        number = len(list(self.directory.glob("agent-*.log")))
        log = self.directory / f"agent-{number}.log"
        with log.open("wb") as output:
            agent = subprocess.Popen(
                [sys.executable, "-m", "launcher.cli", *flags, "train.py"],
                cwd=self.directory,
                env=os.environ | told | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Agent(process=agent, log=log)
        finally:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
                try:
                    agent.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()

    def until(self, look: Callable[[], bool], what: str, seconds: float = 100.0) -> None:
        """Wait until something is so.

        Raises:
            AssertionError: it does not come to be.
        """
        patience = Patience(seconds)
        while not look():
            assert not patience.over, f"{what} did not come within {seconds:.0f} s"
            time.sleep(0.1)


def ended_well(run: Run) -> Run:
    """A run that ended with 0.

    Raises:
        AssertionError: it did not.
    """
    assert run.code == 0, f"brain-run ended with {run.code}\n{run.output[-4000:]}"
    return run
