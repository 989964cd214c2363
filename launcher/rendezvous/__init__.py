"""``torchrun --rdzv-backend=brain``: Brain's worlds for users who keep torchrun.

torchrun starts and watches the workers as usual; the coordinator of ``launcher.coordinator`` forms
the worlds, with the same messages and rules as under ``brain-run``. The coordinator pushes worlds,
an agent passes a notice to leave on at once, ranks follow the topology, and a replaced world never
goes on beside its successor.

    settings   --rdzv-conf and the other parameters, read and checked
    guest      an agent's part in worlds while torchrun runs the workers; a loop in a thread
    handler    torch's interface; the one module of the launcher that imports torch

The entry point for torchrun is ``_elastic_brain:handlers``.
"""
