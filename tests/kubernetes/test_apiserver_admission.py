"""The emulator admits, resizes and evicts as a real server did beside which nobody acted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.apiserver import serving
from tests.kubernetes.clusters import client, only_emulated
from tests.kubernetes.replaying import Replay

TRANSCRIPT = Path(__file__).with_name("admission-1.36-transcript.json")
EXCHANGES = json.loads(TRANSCRIPT.read_bytes())["exchanges"]
CHECKS = list(dict.fromkeys(exchange["check"] for exchange in EXCHANGES))

pytestmark = only_emulated("statuses of nodes, quotas and budgets are played, which others write")


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    with serving(tmp_path_factory.mktemp("server"), bare=True) as server:
        played = Replay(lambda: client(server.kubeconfig, "python-httpx/0.28.1"))
        played.run(EXCHANGES)
        yield played


@pytest.mark.parametrize("check", CHECKS)
def test_an_answer_agrees_with_the_recording(replay: Replay, check: str) -> None:
    assert replay.differences[check] == []
