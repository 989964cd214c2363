"""The torchrun of the workers' torch: its flags, and facts that only that torch knows."""
