"""``python -m brain.service`` runs the service."""

import gc
import sys

from brain.errors import Unavailable
from brain.extras import expect

if __name__ == "__main__":
    try:
        expect("the service", "server")
    except Unavailable as missing:
        sys.exit(f"brain.service: {missing}")
    # Modules stay in memory; without this, garbage collection of them takes a third of start and
    # exit.
    gc.disable()
    # Imported late, because it imports distributions that may be missing.
    from brain.service.start import main

    gc.freeze()
    gc.enable()
    sys.exit(main())
