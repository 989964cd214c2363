"""A script that does nothing for a while."""

import time

time.sleep(120)
