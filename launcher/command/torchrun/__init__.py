"""The torchrun of the workers' torch: what it takes, and what only that torch can answer."""
