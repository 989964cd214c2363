"""Prints lines to both streams and fails at once: what was flushed comes before the traceback."""

import sys

for number in range(50):
    print("out", number, flush=True)
    print("err", number, file=sys.stderr, flush=True)
print("last", flush=True)
raise KeyError("loss")
