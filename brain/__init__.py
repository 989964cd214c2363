"""Brain: measures training jobs, predicts their throughput, resizes them and verifies the result.

Each layer imports only the layers below it; import-linter checks this (``pyproject.toml``): shells
(``cli``, ``service``), faces (``api``), adapters (``db``, ``memory``, ``client``), spine
(``cycle``, ``lifecycle``), ports, maths (``optimizer``, ``models``), words (``types``, ``errors``,
``settings``, ``wire``).
"""

__version__ = "0.1.0"
