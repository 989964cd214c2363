"""Trains with Lightning's Trainer, DDP or either FSDP, and checkpoints that are saved directly or
in a thread.
"""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from pieces import BATCH, EVERY, STEPS, WIDTH, examples, options, tell, tell_resumed, wait
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, TensorDataset


class FullySharded(FSDPStrategy):
    """A subclass of the FSDP strategy, because the Trainer refuses a CPU for the class itself, but
    not for a subclass.
    """


STRATEGIES = {
    "ddp": lambda world: "ddp",
    "fsdp": lambda world: FullySharded(state_dict_type="sharded"),
    # Left to itself it shards data over nodes alone.
    "fsdp2": lambda world: ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=1),
}


class Regression(lightning.LightningModule):
    def __init__(self, pause):
        super().__init__()
        self.layer, self.pause = nn.Linear(WIDTH, 1), pause

    def configure_model(self):
        if isinstance(self.trainer.strategy, FSDPStrategy):
            # Wrapped by the strategy, it would look for a card.
            self.layer = FullyShardedDataParallel(self.layer, device_id=torch.device("cpu"))
        elif isinstance(self.trainer.strategy, ModelParallelStrategy):
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def on_train_start(self):
        if self.global_rank == 0 and self.global_step:
            tell_resumed(self.global_step)

    def training_step(self, part, index):
        inputs, targets = part
        loss = nn.functional.mse_loss(self.layer(inputs), targets)
        mean = self.all_gather(loss.detach()).mean()
        wait(self.pause)
        if self.global_rank == 0:
            tell(self.global_step + 1, mean.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    parser = options()
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp")
    parser.add_argument("--asynchronous", action="store_true")
    args = parser.parse_args()
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    lightning.seed_everything(7)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy=STRATEGIES[args.strategy](world),
        devices=here,
        num_nodes=world // here,
        max_steps=STEPS,
        logger=False,
        enable_progress_bar=False,
        callbacks=[
            ModelCheckpoint(
                args.checkpoint, every_n_train_steps=EVERY, save_last=True, save_top_k=1
            )
        ],
        plugins=[AsyncCheckpointIO()] if args.asynchronous else [],
    )
    loader = DataLoader(TensorDataset(*examples(EVERY * BATCH)), BATCH // world)
    trainer.fit(Regression(args.pause), loader, ckpt_path="last")


if __name__ == "__main__":
    main()
