"""The probe inside a worker, and the collector on a machine.

``probe`` runs inside the user's processes: a self-contained package, standard library only, CPython
3.8 on, which no other module here imports. The rest needs ``httpx2`` and ``msgspec`` alone, with
``psutil`` and ``nvidia-ml-py`` where they are installed. Never torch.
"""
