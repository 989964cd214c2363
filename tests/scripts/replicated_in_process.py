"""``replicated.py`` whose process stays while its world changes: by ``launcher.elastic``.

Its records have the same form. A line is written where a step is done, before anything follows it.
"""

import os
import time

import replicated
import torch
from torch.utils.data import DataLoader, TensorDataset

from launcher import elastic


def main() -> None:
    """Train, and tell what came of each step."""
    options = replicated.arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = replicated.data()
    model = replicated.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    sampler = elastic.Sampler(len(x), global_batch=replicated.GLOBAL_BATCH)
    loader = DataLoader(TensorDataset(x, y, torch.arange(len(x))), batch_sampler=sampler)
    step = 0
    if os.path.exists(options.checkpoint):
        state = torch.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])
        step = state["step"]
    session = elastic.join(model, optimizer, sampler=sampler, steps=step)
    name = f"{session.world}-{session.rank}-{os.getpid()}-{time.monotonic_ns()}"
    with open(os.path.join(options.records, name), "w", buffering=1) as lines:
        for _ in session.epochs(1_000_000):
            for inputs, targets, examples in session.batches(loader):
                with session.step() as part:
                    time.sleep(options.pace)
                    at = f"{session.world} {session.rank} {session.size} {session.steps + 1}"
                    loss = (session.model(inputs) - targets).square().mean() * part.weight
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    proof = replicated.digest(model, optimizer, session.steps + 1, sampler)
                    trained = ",".join(map(str, examples.tolist()))
                    print(at, proof, f"{loss.item():.6f}", trained, file=lines)
                if session.rank == 0 and session.steps % options.save_every == 0:
                    state = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "sampler": sampler.state_dict(),
                        "step": session.steps,
                    }
                    torch.save(state, options.checkpoint + ".tmp")
                    os.replace(options.checkpoint + ".tmp", options.checkpoint)
                if session.steps >= options.steps:
                    return


if __name__ == "__main__":
    main()
