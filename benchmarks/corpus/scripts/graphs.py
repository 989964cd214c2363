"""Trains on small graphs with torch_geometric under DDP; each rank has its part of a batch."""

import torch
import torch.distributed as dist
from pieces import BATCH, options, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(4, 16), nn.Linear(16, 1)

    def forward(self, graphs):
        hidden = self.first(graphs.x, graphs.edge_index).relu()
        return self.last(global_mean_pool(hidden, graphs.batch))


def graph(number):
    made = torch.Generator().manual_seed(number)
    features = torch.randn(6, 4, generator=made)
    edges = torch.randint(6, (2, 12), generator=made)
    return Data(x=features, edge_index=edges, y=features.mean().view(1, 1))


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    rank, part = dist.get_rank(), BATCH // dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train_step(step):
        first = step * BATCH + rank * part
        graphs = Batch.from_data_list([graph(first + number) for number in range(part)])
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(graphs), graphs.y)
        loss.backward()
        optimizer.step()
        return loss

    train(args, {"model": model, "optimizer": optimizer}, train_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
