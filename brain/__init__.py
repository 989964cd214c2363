"""Brain: measures training jobs, predicts their throughput, resizes them and verifies the result.

The layers, from top to bottom, are shells (``cli``, ``service``), faces (``api``), adapters
(``db``, ``inmemory``, ``client``), spine (``cycle``, ``lifecycle``), ports, maths (``optimizer``,
``models``) and words (``types``, ``errors``, ``settings``, ``wire``). Each layer imports only the
layers below it. import-linter checks these imports with the rules in ``pyproject.toml``.
"""

__version__ = "0.1.0"
