"""Brain: one closed loop from a step of training to a verified resize.

Layers, each importing only those below it (import-linter holds them to it, see
``pyproject.toml``): shells (``cli``, ``service``), faces (``api``), adapters (``db``,
``memory``, ``client``), spine (``cycle``, ``lifecycle``), ports, maths (``optimizer``,
``models``), words (``types``, ``errors``, ``settings``, ``wire``).
"""

__version__ = "0.1.0"
