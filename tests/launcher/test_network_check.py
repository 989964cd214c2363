"""Nodes are tried in pairs before the first world: who is found, who is left out."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brain.types.resources import NodeName
from brain.types.world import Member
from launcher import messages
from launcher.agent.network_check import script
from launcher.agent.network_check.measurement import measure
from launcher.coordinator.network_checks import NetworkChecks
from launcher.values.network_check.measurements import CheckRound, NodeMeasured, Usual
from launcher.values.network_check.pairing import first_round, next_round
from launcher.values.network_check.terms import CheckTerms
from launcher.values.network_check.verdicts import Verdicts, remembered, spared, verdicts
from launcher.workers.processes.process import free_port
from tests.launcher.building import a_config, python

BROKEN = NodeMeasured(ok=False, reason="no link")


def fine(compute: float = 1.0, exchange: float = 1.0) -> NodeMeasured:
    return NodeMeasured(ok=True, compute_seconds=compute, exchange_seconds=exchange)


def checked(
    nodes: Mapping[int, NodeMeasured],
    usual: Mapping[str, Usual] | None = None,
    *,
    together: Mapping[int, NodeMeasured] | None = None,
) -> Verdicts:
    """Rounds in which a group is as good as its worst node; ``together`` is a first round that
    nobody is to blame for alone."""

    def tried(groups: tuple[tuple[int, ...], ...], seen: Mapping[int, NodeMeasured]) -> CheckRound:
        measured = {}
        for group in groups:
            bad = any(not seen[replica].ok for replica in group)
            slowest = max(seen[replica].exchange_seconds for replica in group)
            for replica in group:
                shown = slowest if len(group) > 1 else 0.0
                good = replace(seen[replica], exchange_seconds=shown)
                measured[replica] = BROKEN if bad else good
        return CheckRound(groups=groups, measured=measured)

    rounds = [tried(first_round(list(nodes)), together or nodes)]
    while again := next_round(rounds, usual or {}, 2.0):
        rounds.append(tried(again, nodes))
    return verdicts(rounds, usual or {}, 2.0)


@pytest.mark.parametrize("bad", range(5))
def test_two_rounds_tell_the_bad_node_from_its_partner(bad: int) -> None:
    nodes = {replica: BROKEN if replica == bad else fine() for replica in range(5)}
    assert checked(nodes).failed == {bad: "no link"}


def test_of_two_nodes_the_bad_one_is_found_alone() -> None:
    assert checked({0: fine(), 1: BROKEN}).failed == {1: "no link"}


def test_a_broken_link_between_two_good_nodes_keeps_the_first() -> None:
    nodes = {0: fine(), 1: fine()}
    found = checked(nodes, together={0: BROKEN, 1: BROKEN})
    assert found.failed == {
        1: "its connection with replica 0 failed, but each of the two nodes passed the check alone"
    }


def test_who_does_not_answer_in_both_rounds_has_failed() -> None:
    rounds = [
        CheckRound(groups=((0, 1), (2, 3)), measured={2: fine(), 3: fine()}),
        CheckRound(groups=((0, 2), (1, 3)), measured={0: fine(), 2: fine()}),
    ]
    assert verdicts(rounds, {}, 2.0).failed == {1: "the node did not answer"}


def test_all_fine_is_one_round_and_nobody_is_named() -> None:
    first = CheckRound(groups=((0, 1),), measured={0: fine(), 1: fine()})
    assert (next_round([first], {}, 2.0), checked({0: fine(), 1: fine()})) == ((), Verdicts())


def test_of_two_nodes_the_slow_one_is_found_by_its_own_arithmetic() -> None:
    assert list(checked({0: fine(compute=50), 1: fine(compute=1)}).slow) == [0]


def test_a_half_slow_cluster_is_measured_by_its_fast_half() -> None:
    nodes = {replica: fine(compute=50 if replica < 2 else 1) for replica in range(4)}
    assert sorted(checked(nodes).slow) == [0, 1]


def test_where_most_are_slow_what_was_usual_tells() -> None:
    nodes = {replica: fine(compute=50 if replica < 3 else 1) for replica in range(4)}
    usual = {"cpu": Usual(compute_seconds=1.0, exchange_seconds=1.0)}
    assert sorted(checked(nodes, usual).slow) == [0, 1, 2]
    assert (
        checked({0: fine(compute=50)}, usual).slow[0].startswith("its arithmetic took 50 s, 50.0")
    )


def test_a_slow_link_is_blamed_on_the_node_that_takes_it_along() -> None:
    nodes = {replica: fine(exchange=9 if replica == 2 else 1) for replica in range(4)}
    assert list(checked(nodes).slow) == [2]


def test_nodes_of_another_kind_are_not_compared() -> None:
    other = NodeMeasured(ok=True, compute_seconds=0.1, exchange_seconds=1.0, kind="H100")
    assert checked({0: fine(), 1: fine(), 2: other}).slow == {}


def test_slow_nodes_stay_where_the_rest_would_not_be_enough() -> None:
    slow = {1: "slow"}
    assert spared(slow, [0, 1, 2, 3], unit=2, minimum=2) == (1,)
    assert spared(slow, [0, 1], unit=1, minimum=2) == ()
    assert spared(slow, [0, 1], unit=2, minimum=1) == ()


def test_the_best_is_remembered() -> None:
    first = CheckRound(groups=((0, 1),), measured={0: fine(2), 1: fine(3)})
    usual = remembered([first], {"cpu": Usual(compute_seconds=9.0)})
    assert usual == {"cpu": Usual(compute_seconds=2.0, exchange_seconds=1.0)}


def measured(
    rank: int, size: int, host: str, port: int, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    place = [str(rank), str(size), host, str(port), "60"]
    command = [sys.executable, script.__file__, *place, "64", "1", "5"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


@pytest.mark.parametrize(
    ("torch", "host"),
    [(True, "127.0.0.1"), (False, "127.0.0.1"), (False, "[::1]")],
    ids=["torch", "plain", "plain-ipv6"],
)
def test_a_group_measures_itself(tmp_path: Path, torch: bool, host: str) -> None:
    if torch:
        pytest.importorskip("torch")
    else:
        (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    port = free_port(host.strip("[]"))
    environment = dict(os.environ) | {"PYTHONPATH": str(tmp_path)}
    group = [measured(rank, 2, host, port, environment) for rank in range(2)]
    said = [json.loads(each.communicate(timeout=100)[0].splitlines()[-1]) for each in group]
    assert [(each["ok"], each["torch"]) for each in said] == [(True, torch)] * 2, said
    assert all(each["compute_seconds"] > 0 and each["exchange_seconds"] > 0 for each in said)


def test_a_check_that_cannot_be_started_is_an_answer(tmp_path: Path) -> None:
    config = a_config(tmp_path / "gone", python("pass"))
    asked = messages.Check(round=2, rank=0, size=1, host="127.0.0.1", port=1, seconds=60.0)
    said = asyncio.run(measure(config, asked))
    assert (said.round, said.measured.ok) == (2, False)
    assert "cannot be started" in said.measured.reason


class Agents:
    """Stands for connected agents: each answers a question by what is wrong with its node."""

    def __init__(self, broken: Collection[int], slow: Collection[int] = ()) -> None:
        self._broken, self._slow = broken, slow
        self.released: dict[int, str] = {}
        self.asked: list[messages.Check] = []
        self.checking: NetworkChecks | None = None

    def get(self, replica: int) -> "Agent":
        return Agent(replica, self)

    def release(self, replica: int, bye: messages.Bye) -> None:
        self.released[replica] = bye.detail

    def answer(self, replica: int, asked: messages.Check) -> None:
        assert self.checking is not None
        self.asked.append(asked)
        seen = BROKEN if replica in self._broken else fine(9.0 if replica in self._slow else 1.0)
        self.checking.heard(replica, messages.Checked(round=asked.round, measured=seen))


class Agent:
    port = 29500

    def __init__(self, replica: int, agents: Agents) -> None:
        self._replica, self._agents = replica, agents
        self.connection = self

    def send(self, asked: messages.Check) -> None:
        asyncio.get_running_loop().call_soon(self._agents.answer, self._replica, asked)


def checking(home: Path, agents: Agents, count: int, minimum: int = 1, **changes: Any) -> list[str]:
    """What a person is told when ``count`` nodes are checked."""
    said: list[str] = []
    terms = CheckTerms(memory=home / "usual.json", tell=said.append, seconds=60.0, **changes)
    members = [
        Member(
            replica=number,
            group_rank=number,
            processes=1,
            node=NodeName(f"n{number}"),
            address=f"10.0.0.{number}:1",
        )
        for number in range(count)
    ]

    async def run() -> None:
        checked = agents.checking = NetworkChecks(terms, agents)  # type: ignore[arg-type]
        await checked.run(members, unit=1, minimum=minimum)
        assert not checked.due

    asyncio.run(run())
    return said


def test_a_node_that_fails_twice_is_let_go_with_the_reason(tmp_path: Path) -> None:
    agents = Agents(broken=[2])
    said = checking(tmp_path, agents, 3)
    why = "this node failed the check before training and is left out: no link"
    assert (agents.released, len(said)) == ({2: why}, 1)


def test_slow_nodes_are_left_out_only_where_that_was_asked(tmp_path: Path) -> None:
    asked, unasked = Agents(broken=[], slow=[1]), Agents(broken=[], slow=[1])
    checking(tmp_path, asked, 3, exclude_stragglers=True)
    (told,) = checking(tmp_path, unasked, 3)
    assert (list(asked.released), unasked.released) == ([1], {})
    assert told.startswith("node n1 (replica 1) is slow and takes part: its arithmetic took 9 s")


def test_slow_nodes_take_part_where_the_minimum_needs_them(tmp_path: Path) -> None:
    agents = Agents(broken=[], slow=[1])
    checking(tmp_path, agents, 2, minimum=2, exclude_stragglers=True)
    assert agents.released == {}


def test_what_was_usual_outlives_a_damaged_memory(tmp_path: Path) -> None:
    (tmp_path / "usual.json").write_text("{")
    assert checking(tmp_path, Agents(broken=[]), 2) == []
    assert json.loads((tmp_path / "usual.json").read_text())["cpu"]["compute_seconds"] == 1.0


def brain_run(place: Path, *flags: str, **environment: str) -> "subprocess.Popen[str]":
    (place / "train.py").write_text("import os; print('world', os.environ['WORLD_SIZE'])")
    (place / "torch.py").write_text("raise ImportError('plain Python measures as well')")
    return subprocess.Popen(
        [sys.executable, "-m", "launcher.cli", "--network-check", *flags, "train.py"],
        cwd=place,
        env=dict(os.environ) | {"HOME": str(place), "PYTHONPATH": str(place)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_node_that_fails_alone_ends_with_1_and_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *network_check*) echo no driver >&2; exit 1;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    broken.chmod(0o755)
    node = brain_run(tmp_path, "--nnodes=1:2", "--standalone", PYTHON_EXEC=str(broken))
    out, err = node.communicate(timeout=100)
    assert (node.returncode, out) == (1, "")
    assert "failed the check before training and is left out: no driver" in err


def test_nodes_that_pass_train(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    flags = ["--nnodes=2", "--precheck=2", "--rdzv-backend=c10d", "--rdzv-id=checked"]
    nodes = [brain_run(tmp_path, *flags, f"--rdzv-endpoint=127.0.0.1:{port}") for _ in range(2)]
    ends = [node.communicate(timeout=100) for node in nodes]
    assert [out for out, _ in ends] == ["world 2\n", "world 2\n"], ends
    assert sum("16 MiB all-reduced in" in err for _, err in ends) == 1
