"""Makes steps with and without the probe's hooks in turn, and measures the CPU time of a step.

``brain-run`` starts it like any script. It removes the hooks from torch and restores them, so that
both halves of a pair run in the same process under the same conditions. It writes pairs of
microseconds of CPU time per step (with, without), over all threads, to
``$BENCH_TRACE/cost-<rank>``.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

KIND = sys.argv[1]
PAIRS, LAYERS, WIDTH = map(int, sys.argv[2:])
BATCH = 8
#: Turns of each half of a pair: what else the machine does then hits both.
TURNS = 4
#: Steps of a turn, and before the first: sampled steps are those after a multiple of eight, so that
#: no turn ends with one open.
STEPS, WARM = 256, 508


@contextmanager
def unobserved() -> Iterator[None]:
    """Run the block without any call of the probe."""
    hooks = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
    taken = [dict(each) for each in hooks]
    observed = _BaseDataLoaderIter.__next__
    assert all(taken), "the probe is not here"
    for each in hooks:
        each.clear()
    _BaseDataLoaderIter.__next__ = observed.__wrapped__
    try:
        yield
    finally:
        for each, content in zip(hooks, taken, strict=True):
            each.update(content)
        _BaseDataLoaderIter.__next__ = observed


def main() -> None:
    """Measure pairs of steps, and write them."""
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    network = torch.nn.Sequential(*layers)
    if KIND == "ddp":
        dist.init_process_group("gloo")
        network = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(64 * BATCH, WIDTH)), batch_size=BATCH)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def took(steps: int) -> float:
        began = time.process_time()
        for (batch,) in itertools.islice(batches, steps):
            optimizer.zero_grad()
            network(batch).sum().backward()
            optimizer.step()
        return 1e6 * (time.process_time() - began) / steps

    took(WARM)
    pairs = []
    for _ in range(PAIRS):
        observed = plain = 0.0
        for _ in range(TURNS):
            observed += took(STEPS)
            with unobserved():
                plain += took(STEPS)
        pairs.append((observed / TURNS, plain / TURNS))
    with open(f"{os.environ['BENCH_TRACE']}/cost-{os.environ['RANK']}", "w") as told:
        json.dump(pairs, told)


if __name__ == "__main__":
    main()
