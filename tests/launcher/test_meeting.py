"""Ranks that reach the process group before rank 0 wait for it, and no longer than it takes."""

import importlib.util
import socket
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import launcher


def loaded() -> ModuleType:
    """The guest, as workers load it."""
    path = Path(launcher.__file__).parent / "inject" / "meeting.py"
    spec = importlib.util.spec_from_file_location("_brain_meeting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MEETING = loaded()


def test_whoever_comes_first_waits_until_somebody_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        host, port = server.getsockname()
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            server.listen()

        MEETING.until_listening(host, port, pause)

        assert len(pauses) == 1


def test_an_address_in_doubt_is_left_to_torch() -> None:
    def pause(_: float) -> None:
        raise AssertionError("nothing to wait for")

    MEETING.until_listening("no-such-host.invalid", 1, pause)


@pytest.mark.parametrize(
    ("rank", "url", "expected"),
    [
        ("1", "env://", ("127.0.0.1", 29500)),
        ("0", "env://", None),
        ("1", "tcp://127.0.0.1:29500", None),
    ],
)
def test_only_ranks_that_look_for_rank_0_by_the_environment_wait(
    monkeypatch: pytest.MonkeyPatch, rank: str, url: str, expected: object
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)

    assert MEETING.store_address(url, ()) == expected


def test_the_first_meeting_leaves_torch_as_it_was() -> None:
    def rendezvous(url: str, rank: int) -> str:
        return f"{url} {rank}"

    module = SimpleNamespace(rendezvous=rendezvous)
    MEETING._once(module)

    assert module.rendezvous("env://", 0) == "env:// 0"
    assert module.rendezvous is rendezvous
