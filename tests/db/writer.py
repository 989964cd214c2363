"""A process for tests to harm: commits events for ever and prints the id of each once committed."""

import sys

from brain.db import SqlStores
from tests.builders import event, throughput

stores = SqlStores(sys.argv[1])
for number in range(1_000_000):
    with stores.transaction() as t:
        t.telemetry.add([throughput(number)], received_at=event().at)
        stored = t.events.add(event(subject=number))
    print(stored.id, flush=True)
