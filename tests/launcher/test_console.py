"""By hand the console belongs to the script, but nobody waits for long without knowing for what."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from launcher.values.console import Discreet, say
from tests.disks import full_disk


async def _told(*texts: str, patience_seconds: float = 0.0) -> list[str]:
    written: list[str] = []
    say = Discreet(written.append, patience_seconds)
    for text in texts:
        say(text)
    await asyncio.sleep(0.01)
    return written


def told(*texts: str, patience_seconds: float = 0.0) -> list[str]:
    """What was written of these, said one after the other."""
    return asyncio.run(_told(*texts, patience_seconds=patience_seconds))


def test_what_is_waited_for_is_said_once_it_lasts() -> None:
    assert told("waiting: 1 of 2 nodes") == ["waiting: 1 of 2 nodes"]


def test_a_short_wait_is_not_worth_a_line() -> None:
    assert told("waiting: 1 of 2 nodes", patience_seconds=60.0) == []


def test_a_wait_that_is_over_is_not_told_of() -> None:
    assert told("waiting: 1 of 2 nodes", "world 1 begins") == []


def test_a_wait_that_other_words_interrupt_again_and_again_is_said_once() -> None:
    async def waits() -> list[str]:
        written: list[str] = []
        say = Discreet(written.append, 0.2)
        for _ in range(10):
            say("waiting: half of them are here")
            await asyncio.sleep(0.05)
            say("another agent coordinates")
        return written

    assert asyncio.run(waits()) == ["waiting: half of them are here"]


def test_a_debugger_is_told_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_DEBUG", "1")

    assert told("world 1 begins", patience_seconds=60.0) == ["world 1 begins"]


def test_a_full_disk_behind_standard_error_costs_what_was_to_be_said_only(tmp_path: Path) -> None:
    log = (tmp_path / "output.log").open("w")
    with contextlib.redirect_stderr(log), full_disk():
        say("world 1 begins")
    with contextlib.suppress(OSError):
        log.close()
    assert (tmp_path / "output.log").read_text() in ("", "brain: world 1 begins\n")
