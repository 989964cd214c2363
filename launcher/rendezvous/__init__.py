"""``torchrun --rdzv-backend=brain``: our worlds for those who keep torchrun.

torchrun starts and watches the workers as ever; who meets whom is decided by the coordinator of
``launcher.coordinator``, with the same messages and rules as under ``brain-run``. Worlds are
pushed, a notice to leave is passed on at once, ranks follow the topology, and a world that was
replaced never goes on beside its successor.

    settings   --rdzv-conf and the other parameters, read and checked
    guest      an agent's part in worlds while torchrun runs the workers; a loop in a thread
    handler    torch's interface; the one module of the launcher that imports torch

The entry point for torchrun is ``_elastic_brain:handlers``.
"""
