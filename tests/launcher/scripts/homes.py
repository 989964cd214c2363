"""What a script chooses for a library counts, at whichever line it does: ``homes.py WHERE``."""

import argparse
import gc
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("where")
parser.add_argument("--level", default="3")
given = parser.parse_args()
rank = os.environ["RANK"]
if given.where == "before":
    os.environ["CHOSEN_HOME"] = "/data"
if given.where == "before, by rank":
    os.environ["CHOSEN_HOME"] = f"/data/{rank}"

import imported_first  # noqa: E402, F401

if given.where == "between":
    os.environ.update(CHOSEN_HOME="/data", CHOSEN_LEVEL=given.level)
if given.where == "between, by rank":
    os.environ["CHOSEN_HOME"] = f"/data/{rank}"

import chosen_home  # noqa: E402

# Announces a first step in the control file that the probe of a worker of ours keeps.
for each in gc.get_objects():
    if isinstance(each, memoryview) and each.format == "Q":
        each[7] = 1
sys.stdout.write(f"{rank}: {chosen_home.home} {chosen_home.level}\n")
sys.stdout.flush()
if "LINGER" in os.environ:  # until the launcher knows what was imported
    time.sleep(600)
