"""The probe inside a worker and the collector on a machine: both measure.

``probe`` is a guest in other people's processes: one self-contained file, standard library only,
CPython 3.8 on, never imported by anything here. The rest needs ``httpx2`` and ``msgspec`` alone,
with ``psutil`` and ``nvidia-ml-py`` where they are installed. Never torch.
"""
