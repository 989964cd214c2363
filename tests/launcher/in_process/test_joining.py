"""As a process joins: where it listens, what it is told the second time; and its forks are mute."""

import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from brain.errors import BadInput
from launcher import elastic
from launcher.elastic.groups import devices
from launcher.elastic.line import MESSAGE_BYTES, Line
from launcher.elastic.member import SessionMember
from launcher.elastic.sockets import listening

#: No machine has this address (RFC 5737).
ELSEWHERE = "192.0.2.1"


def where(interfaces: str) -> list[str]:
    """Addresses that gloo listens at, on a machine whose peers know it by another one's."""
    before = set(listening())
    made = devices(ELSEWHERE, interfaces)
    found = sorted(at for at, _ in set(listening()) - before)
    assert len(found) == len(made)
    return found


@pytest.mark.parametrize("interfaces", ["lo", "lo,lo"])
def test_gloo_listens_at_the_interfaces_that_torch_is_told(interfaces: str) -> None:
    assert where(interfaces) == ["127.0.0.1" for _ in interfaces.split(",")]


def test_gloo_listens_under_the_machines_name_where_peers_reach_it_by_no_address_of_its_own() -> (
    None
):
    assert ELSEWHERE not in where("")


def test_a_process_that_has_a_session_is_told_how_to_join_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_one = SimpleNamespace(told={"socket": "nowhere"}, failing=None)
    monkeypatch.setitem(sys.modules, "_brain_elastic", has_one)
    model = torch.nn.Linear(1, 1)
    with pytest.raises(BadInput, match="ModuleList"):
        elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_what_a_fork_of_a_worker_says_is_not_said_for_the_worker(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.bind(str(tmp_path / "line"))
        agent.listen()
        line = Line(str(tmp_path / "line"), print)
        heard, _ = agent.accept()
    fork = os.fork()
    if fork == 0:
        try:
            line.say("failing", epoch=1)
        finally:
            os._exit(0)
    os.waitpid(fork, 0)
    line.say("ready", epoch=1)
    heard.settimeout(30)
    assert b"ready" in heard.recv(MESSAGE_BYTES)
    heard.close()
    line._socket.close()


def test_a_world_that_a_worker_moves_to_is_not_replaced_by_a_newer_plan(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.bind(str(tmp_path / "sessions"))
        agent.listen()
        member = SessionMember(
            str(tmp_path / "sessions"), 0, device=torch.device("cpu"), steps=lambda: 0
        )
        member.open()
        line, _ = agent.accept()
    with line:
        line.settimeout(60)
        line.send(build_order(epoch=1, size=1))
        member.begun()
        line.send(build_order(epoch=2, size=2))
        while json.loads(line.recv(MESSAGE_BYTES)).get("epoch") != 2:
            continue  # until it builds the world whose other member never comes
        plan, _ = member.present
        assert (plan.epoch, member.world) == (1, 1)
    member._line._socket.close()


def build_order(*, epoch: int, size: int) -> bytes:
    """The agent's order to build a world that comes immediately."""
    plan = {"epoch": epoch, "rank": 0, "size": size, "now": True}
    return json.dumps({"do": "build", "plan": plan}).encode()
