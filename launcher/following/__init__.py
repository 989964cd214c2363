"""Who coordinates, and how an agent finds it."""
