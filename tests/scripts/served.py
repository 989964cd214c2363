"""Stands in for a program with parameter servers: servers compute, and the chief counts steps.

Of TensorFlow it needs the modules that ``tests.collectors.test_probe_tensorflow`` writes down.
"""

import json
import os
import pathlib
import sys
import time

config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
print("place", task["type"], task["index"], len(cluster["ps"]), len(cluster["worker"]), flush=True)
while task["type"] != "chief":
    until = time.thread_time() + (0.02 if task["type"] == "ps" else 0.0)
    while time.thread_time() < until:
        pass
    time.sleep(0.02)

from tensorflow.python.checkpoint.checkpoint import Checkpoint  # noqa: E402
from tensorflow.python.distribute.coordinator.cluster_coordinator import (  # noqa: E402
    ClusterCoordinator,
)

kept = pathlib.Path("kept", "steps")
steps = int(kept.read_text()) if kept.exists() else 0
print("begins at step", steps, flush=True)
coordinator, checkpoint = ClusterCoordinator(), Checkpoint()
if steps:
    checkpoint.restore("kept/ckpt")
while not os.path.exists(sys.argv[1]):
    for _ in range(20):
        coordinator.schedule(lambda: time.sleep(0.01))
    coordinator.join()
    steps += 20
    if steps % 100 == 0:
        checkpoint.write("kept/ckpt")
        kept.write_text(str(steps))
