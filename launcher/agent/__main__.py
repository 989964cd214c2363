"""``python -m launcher.agent``."""

import sys

from launcher.agent.program import main

if __name__ == "__main__":
    sys.exit(main())
