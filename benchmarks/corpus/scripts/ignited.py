"""Trains with ignite's engine, its distributed context and its checkpoints."""

from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from pieces import BATCH, EVERY, STEPS, WIDTH, examples, options, tell, tell_resumed, wait
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    args = options().parse_args()
    idist.initialize("gloo")
    torch.manual_seed(7)
    model = idist.auto_model(nn.Linear(WIDTH, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.05))
    data = TensorDataset(*examples(EVERY * BATCH))
    size, rank = idist.get_world_size(), idist.get_rank()
    sampler = DistributedSampler(data, size, rank, seed=3)
    loader = DataLoader(data, BATCH // size, sampler=sampler)

    def train_step(engine, part):
        inputs, targets = part
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return idist.all_reduce(loss.item()) / size

    trainer = Engine(train_step)
    trainer.add_event_handler(
        Events.EPOCH_STARTED, lambda engine: sampler.set_epoch(engine.state.epoch)
    )

    @trainer.on(Events.ITERATION_COMPLETED)
    def told(engine):
        wait(args.pause)
        if rank == 0:
            tell(engine.state.iteration, engine.state.output)

    parts = {"model": model, "optimizer": optimizer, "trainer": trainer}
    saver = DiskSaver(args.checkpoint, create_dir=True, require_empty=False)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(parts, saver, n_saved=2))
    saved = sorted(Path(args.checkpoint).glob("*.pt"), key=lambda path: path.stat().st_mtime)
    if saved:
        Checkpoint.load_objects(parts, torch.load(saved[-1]))
        if rank == 0:
            tell_resumed(trainer.state.iteration)
    trainer.run(loader, max_epochs=STEPS // EVERY)
    idist.finalize()


if __name__ == "__main__":
    main()
