"""``train.py`` with more imports than torch, as in real scripts."""

import time

BEGAN = time.monotonic()

import networkx  # noqa: E402, F401
import numpy  # noqa: E402, F401
import scipy.optimize  # noqa: E402
import scipy.stats  # noqa: E402, F401
import sklearn.ensemble  # noqa: E402
import sklearn.model_selection  # noqa: E402, F401
import sympy  # noqa: E402, F401
import train  # noqa: E402

if __name__ == "__main__":
    train.BEGAN = BEGAN
    train.main()
