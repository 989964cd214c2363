"""What only some flags of torchrun ask for: binding to CPUs, other log layouts, events as JSON."""
