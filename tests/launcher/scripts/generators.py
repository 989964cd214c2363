"""A worker that draws from every generator, after it seeded them where it is told to."""

import os
import random
import secrets
import sys
import tempfile
import time
import uuid

if sys.argv[1] == "seeded":
    random.seed(int(os.environ["RANK"]))

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset[float]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(torch.rand(())) + random.random() + numpy.random.rand()


def say(what: str, drawn: object) -> None:
    """In one piece, or two workers' lines mix."""
    os.write(1, f"{what}: {drawn}\n".encode())


def draw() -> None:
    say("initial seed", torch.initial_seed())
    say("torch", torch.rand(4, dtype=torch.float64).tolist())
    say("dropout", torch.nn.functional.dropout(torch.ones(128)).to(torch.int).tolist())
    say("layer", torch.nn.Linear(3, 2).weight.tolist())
    say("order", [int(each) for each in DataLoader(range(64), batch_size=None, shuffle=True)])  # type: ignore[arg-type]
    for number, noise in enumerate(DataLoader(Augmented(), batch_size=4, num_workers=2)):
        say(f"noise {number}", noise.tolist())
    say("random", random.random())
    say("numpy", numpy.random.rand(2).tolist())


def draw_names() -> None:
    say("a generator of numpy", numpy.random.default_rng().random())
    say("uuid", uuid.uuid4())
    say("names", next(tempfile._get_candidate_names()))  # type: ignore[attr-defined]
    say("secrets", secrets.token_hex())


def both_are_here() -> None:
    """Return when the other rank has said everything, too."""
    seen, attempt = os.environ["SEEN"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    open(os.path.join(seen, f"drawn-{attempt}-{os.environ['RANK']}"), "w").close()
    while not all(os.path.exists(os.path.join(seen, f"drawn-{attempt}-{rank}")) for rank in "01"):
        time.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "seeded":
        torch.manual_seed(int(os.environ["RANK"]))
        numpy.random.seed(int(os.environ["RANK"]))
        draw()
    else:
        draw()
        draw_names()
        both_are_here()
        sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
