"""Trains from webdataset: tar shards that are split among ranks and read by a loader worker."""

import itertools
import os

import torch
import torch.distributed as dist
import webdataset
from pieces import BATCH, STEPS, WIDTH, examples, options, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

#: Two shards make a batch, whether one rank reads both or two ranks one each.
SHARDS, PART = 10, BATCH // 2


def write_shards(place):
    if os.path.isdir(place):
        return
    os.makedirs(f"{place}.new", exist_ok=True)
    inputs, targets = examples(SHARDS * PART)
    for shard in range(SHARDS):
        with webdataset.TarWriter(f"{place}.new/{shard:02}.tar") as tar:
            for number in range(shard * PART, (shard + 1) * PART):
                record = {"inputs.pth": inputs[number], "targets.pth": targets[number]}
                tar.write({"__key__": f"{number:04}"} | record)
    os.rename(f"{place}.new", place)


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    place = f"{args.checkpoint}-shards"
    if dist.get_rank() == 0:
        write_shards(place)
    dist.barrier()
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    urls = f"{place}/{{00..{SHARDS - 1:02}}}.tar"
    epoch = webdataset.WebDataset(urls, shardshuffle=False, nodesplitter=webdataset.split_by_node)
    epoch = epoch.decode().to_tuple("inputs.pth", "targets.pth")
    epoch = epoch.batched(BATCH // dist.get_world_size())
    loader = webdataset.WebLoader(epoch, batch_size=None, num_workers=1)
    steps = SHARDS // 2
    batches = itertools.chain.from_iterable(loader for _ in range(STEPS // steps))

    def train_step(step):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    train(args, {"model": model, "optimizer": optimizer}, train_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
