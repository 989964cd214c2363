"""The torchrun of the workers' torch: its flags, and questions that only that torch can answer."""
