"""Trains with the loop of torchvision's and PyTorch's ImageNet examples, on random pictures."""

import os

import torch
import torch.distributed as dist
from pieces import options, wait
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH = 8


class Pictures(Dataset):
    """A dataset with the pictures of one epoch, each generated from its number."""

    def __len__(self):
        return 5 * BATCH

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=made), index % 4


def main():
    parser = options()
    parser.add_argument("--loader", default="")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4)
    )
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Pictures()
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    workers = {"num_workers": 1, "multiprocessing_context": args.loader} if args.loader else {}
    loader = DataLoader(data, BATCH // world, sampler=sampler, **workers)
    first = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
        if rank == 0:
            print(f"resumed at {5 * first}")
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for number, (pictures, labels) in enumerate(loader, 5 * epoch + 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            told = loss.detach().clone()
            dist.all_reduce(told)
            wait(args.pause)
            if rank == 0:
                print(f"step {number} loss {told.item() / world!r}")
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"epoch": epoch + 1}, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
