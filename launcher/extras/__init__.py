"""What agents do beside their workers, some of it only where a flag of torchrun asks for it:
binding to CPUs, other log layouts, events as JSON; a collector, the script's batch, the console.
"""
