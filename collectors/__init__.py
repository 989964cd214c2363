"""The probe inside a worker, and the collector on a machine.

``probe`` runs inside the user's processes. It is self-contained, uses only the standard library and
supports CPython 3.8 and later; no other module imports it. The other modules need only ``httpx2``
and ``msgspec``, and use ``psutil`` and ``nvidia-ml-py`` if these are installed. No module needs
torch.
"""
