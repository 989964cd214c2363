"""A DDP script that proves what its replicas hold: after every step each writes a digest.

The digest is of parameters, momentum, step and the sampler's place. The global batch is the same
whatever the number of workers, so the losses of any run may be compared. Lines of ``--records``:
``epoch rank size step digest loss examples``, the loss such that the mean of all ranks' is that of
the global batch.
"""

import argparse
import hashlib
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXAMPLES, GLOBAL_BATCH = 480, 24


class Sampler:
    """Shuffles all examples in every pass; its place is part of the state."""

    def __init__(self) -> None:
        self.round, self.place = 0, 0
        self._order = self._shuffled()

    def _shuffled(self) -> torch.Tensor:
        return torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(self.round))

    def next(self) -> torch.Tensor:
        """The next global batch."""
        if self.place == EXAMPLES:
            self.round, self.place = self.round + 1, 0
            self._order = self._shuffled()
        self.place += GLOBAL_BATCH
        return self._order[self.place - GLOBAL_BATCH : self.place]

    def state_dict(self) -> "dict[str, int]":
        return {"round": self.round, "place": self.place}

    def load_state_dict(self, state: "dict[str, int]") -> None:
        self.round, self.place = state["round"], state["place"]
        self._order = self._shuffled()


def data() -> "tuple[torch.Tensor, torch.Tensor]":
    """Examples that a small network can learn."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, 8, generator=source)
    return x, torch.sin(x.sum(1, keepdim=True)) + 0.1 * torch.randn(EXAMPLES, 1, generator=source)


def network() -> nn.Module:
    """It learns them in some hundred steps."""
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def digest(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, sampler: Any) -> str:
    """Of everything that replicas must agree on, to the bit."""
    found = hashlib.sha256(f"{step} {sampler.state_dict()}".encode())
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
        momentum = optimizer.state[parameter].get("momentum_buffer")
        if momentum is not None:
            found.update(momentum.numpy().tobytes())
    return found.hexdigest()[:16]


def arguments() -> argparse.Namespace:
    """What both scripts are told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pace", type=float, default=0.03, help="seconds that a step sleeps")
    parser.add_argument("--save-every", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    """Train, and tell what came of each step."""
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    probe = getattr(sys.modules.get("_brain_probe"), "_probe", None)
    epoch = probe.config["epoch"] if probe is not None else 0

    x, y = data()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    sampler, step = Sampler(), 0
    if os.path.exists(options.checkpoint):
        state = torch.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])
        step = state["step"]
    replicated = DistributedDataParallel(model)
    record = os.path.join(options.records, f"{epoch}-{rank}-{os.getpid()}-{time.monotonic_ns()}")
    with open(record, "w", buffering=1) as lines:
        while step < options.steps:
            time.sleep(options.pace)
            rows = sampler.next()
            mine = rows[rank::size]
            # DDP averages over workers: together they shall be the mean over the global batch.
            loss = (replicated(x[mine]) - y[mine]).square().sum() * size / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            proof = digest(model, optimizer, step, sampler)
            examples = ",".join(map(str, mine.tolist()))
            print(epoch, rank, size, step, proof, f"{loss.item():.6f}", examples, file=lines)
            if rank == 0 and step % options.save_every == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "sampler": sampler.state_dict(),
                    "step": step,
                }
                torch.save(state, options.checkpoint + ".tmp")
                os.replace(options.checkpoint + ".tmp", options.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
