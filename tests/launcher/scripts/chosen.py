"""A worker that chooses its number of threads before it imports torch, as no search would find."""

import os

os.environ["OMP" + "_NUM_THREADS"] = str(2)

import torch

os.write(1, f"{torch.get_num_threads()} threads\n".encode())
