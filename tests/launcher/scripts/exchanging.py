"""Two ranks gather, then have torch compare their networks, as often as is said; prints how often.

Torch makes the second exchange from C++, while a thread of gloo may still hold the first one.
"""

import os
import sys
import threading

import torch
import torch.distributed as dist

from launcher.elastic.groups import SessionGroup
from tests.launcher.in_process.test_sessions import meet

TIMES = int(sys.argv[1])


def exchange(group: SessionGroup, made: list[int]) -> None:
    parameters = [torch.nn.Parameter(torch.ones(3))]
    for number in range(TIMES):
        group.gather([number])
        dist._verify_params_across_processes(group.group, parameters)
        made[group.rank] += 1


def main() -> None:
    torch.set_num_threads(1)
    made = [0, 0]
    ranks = [threading.Thread(target=exchange, args=(group, made)) for group in meet(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    print(*made, flush=True)
    os._exit(0)  # the groups' own ends are another matter


if __name__ == "__main__":
    main()
