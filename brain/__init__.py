"""Brain: one closed loop from a step of training to a verified resize.

Each layer imports only the layers below it; import-linter checks this (``pyproject.toml``): shells
(``cli``, ``service``), faces (``api``), adapters (``db``, ``memory``, ``client``), spine
(``cycle``, ``lifecycle``), ports, maths (``optimizer``, ``models``), words (``types``, ``errors``,
``settings``, ``wire``).
"""

__version__ = "0.1.0"
