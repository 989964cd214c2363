"""``python -m brain.service``."""

import sys

from brain.errors import Unavailable
from brain.extras import expect

if __name__ == "__main__":
    try:
        expect("the service", "server")
    except Unavailable as missing:
        sys.exit(f"brain.service: {missing}")
    # Imported late, because it imports distributions that may be missing.
    from brain.service.start import main

    sys.exit(main())
