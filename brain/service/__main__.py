"""``python -m brain.service``."""

import sys

from brain.service.start import main

if __name__ == "__main__":
    sys.exit(main())
