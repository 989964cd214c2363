"""``python -m brain.service``."""

import gc
import sys

from brain.errors import Unavailable
from brain.extras import expect

if __name__ == "__main__":
    try:
        expect("the service", "server")
    except Unavailable as missing:
        sys.exit(f"brain.service: {missing}")
    # Modules stay: looking through them for garbage takes a third of the start and of the end.
    gc.disable()
    # Imported late, because it imports distributions that may be missing.
    from brain.service.start import main

    gc.freeze()
    gc.enable()
    sys.exit(main())
