"""``torchrun --rdzv-backend=brain``: Brain's worlds for users who keep torchrun.

torchrun starts and watches the workers as usual; the coordinator of ``launcher.coordinator`` forms
the worlds, with the same messages and rules as under ``brain-run``. The coordinator sends worlds
immediately, agents announce that they leave, ranks follow the topology, and a replaced world never
runs at the same time as its successor.

    settings   --rdzv-conf and the other parameters, read and checked
    guest      an agent's membership in worlds while torchrun runs the workers, in a thread
    handler    torch's interface; the one module of the launcher that imports torch

The entry point for torchrun is ``_elastic_brain:handlers``.
"""
