"""Real agents, real processes: what the script sees when its world changes."""

import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.launcher.in_process.staging import PATIENCE_SECONDS, Stage, staged


def undisturbed(steps: int) -> dict[int, torch.Tensor]:
    """Parameters of ``scripts/staying.py`` after each step, by one process alone."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    found = {}
    for step in range(steps):
        torch.manual_seed(step)
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        found[step + 1] = torch.cat([each.detach().flatten() for each in model.parameters()])
    return found


def values(told: str) -> torch.Tensor:
    """Parameters as the script wrote them."""
    return torch.frombuffer(bytearray.fromhex(told), dtype=torch.float32)


def same_everywhere(stage: Stage) -> None:
    """No step was lost, made differently by two ranks, or other than in peace."""
    by_step = defaultdict(set)
    for made in stage.steps().values():
        own = sorted({each.steps for each in made})  # one that failed is told twice
        assert own == list(range(own[0], own[-1] + 1))
        for each in made:
            by_step[each.steps].add(each.parameters)
    assert sorted(by_step) == list(range(1, max(by_step) + 1))
    assert all(len(each) == 1 for each in by_step.values())
    for step, expected in undisturbed(max(by_step)).items():
        torch.testing.assert_close(values(next(iter(by_step[step]))), expected)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_process_that_leaves_has_the_grace_to_save(tmp_path: Path) -> None:
    with staged(tmp_path, 2) as stage:
        members = stage.world(2)
        (tmp_path / "steps" / "slow").touch()
        stage.agents[1].send_signal(signal.SIGTERM)
        assert stage.agents[1].wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGTERM
        assert (tmp_path / "steps" / f"left-{members[1]}").exists()


@pytest.mark.timeout(1800)
def test_processes_stay_while_others_join_leave_fail_hang_and_die(tmp_path: Path) -> None:
    with staged(tmp_path, 2) as stage:
        first = stage.world(2)
        third = stage.start()
        joined = stage.world(3)
        assert {rank: joined[rank] for rank in first} == first

        third.send_signal(signal.SIGTERM)
        assert third.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGTERM
        assert stage.world(2) == first

        before = stage.newest()
        os.kill(first[1], signal.SIGKILL)
        healed = stage.world(2, after=before)
        assert (healed[0], healed[1] != first[1]) == (first[0], True)

        before = stage.newest()
        stage.fail(1)
        again = stage.world(2, after=before)
        assert (again[0], again[1] != healed[1]) == (first[0], True)

        before = stage.newest()
        os.kill(again[1], signal.SIGSTOP)
        freed = stage.world(2, after=before)
        assert (freed[0], freed[1] != again[1]) == (first[0], True)

        stage.agents[0].kill()  # the one that coordinates
        assert stage.world(1) == {0: freed[1]}
        stage.finish()
        assert stage.agents[1].returncode == 0
        same_everywhere(stage)
