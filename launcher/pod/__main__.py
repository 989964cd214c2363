"""Runs ``python -m launcher.pod [-- command]``."""

import sys

from launcher.pod.program import main

sys.exit(main(sys.argv[1:]))
