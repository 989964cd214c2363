"""Gloo's threads let go of an exchange with its queue locked: nobody may wait for the queue, and
nothing of the exchange may go, with the interpreter's lock held."""

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from launcher.elastic.groups import Exchanges, SessionGroup

ROOT = Path(__file__).parents[3]
#: Before tensors were kept and the queue was waited for without the lock, 20 to 300 were made.
TIMES = 1000


def test_torch_exchanges_right_after_our_own_exchange_a_thousand_times() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.launcher.scripts.exchanging", str(TIMES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert said.stdout.split() == [str(TIMES), str(TIMES)]


#: A thread of gloo is late in letting go of what it called, as where others have the processor.
LATE = """
import ctypes, time, torch, torch.distributed as dist
from launcher.elastic.groups import Exchanges
ended = Exchanges._ended
def late(*args):
    ended(*args)
    time.sleep(0.2)
Exchanges._ended = late
class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.4)  # the end takes its time
last = Last()
options = dist.ProcessGroupGloo._Options()
options._devices = [dist.ProcessGroupGloo.create_device(hostname='127.0.0.1')]
backend = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, options)
group, kind = Exchanges(0, 1, backend), dist.ProcessGroup.BackendType.GLOO
group._set_default_backend(kind)
group._register_backend(torch.device('cpu'), kind, backend)
for each in (group, backend):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
group.allreduce([torch.ones(3)]).wait()
"""


def test_the_interpreter_ends_after_gloos_threads_have_let_go_of_it() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LATE], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_no_method_that_torch_calls_of_a_group_in_python_is_left_to_torch() -> None:
    called = {name for name in dir(dist.ProcessGroupGloo) if name in _CALLED_OF_PYTHON}
    assert called <= vars(Exchanges).keys()


#: ``WORK_OVERRIDE`` in torch/csrc/distributed/c10d/PyProcessGroup.hpp, 2.11 to 2.13.
_CALLED_OF_PYTHON = {
    *("allgather", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced"),
    *("alltoall_base", "barrier", "broadcast", "reduce_scatter", "reduce_scatter_tensor_coalesced"),
    *("send", "recv"),
}


class Work:
    """An exchange as gloo hands it out."""

    def __init__(self) -> None:
        self.future: torch.futures.Future[Any] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[Any]:
        return self.future


class Queue:
    """A gloo group whose thread makes what it is told to."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        self.works.append(Work())
        return self.works[-1]


def made(works: list[Work]) -> None:
    """A thread of gloo takes the first of these and makes it."""
    works.pop(0).future.set_result(None)


def test_a_group_exchanges_tensors_of_the_device_that_the_network_is_on() -> None:
    second = torch.device("cuda", 1)
    group = SessionGroup(Exchanges(0, 2, Queue()), Queue(), set(), second)
    assert (group.device, group._patience) == (second, ())


def test_an_exchange_is_kept_until_its_thread_has_made_another_one() -> None:
    queue = Queue()
    group = Exchanges(0, 2, queue)
    for _ in range(2):
        group.allreduce([torch.ones(1)], None)
    first = weakref.ref(queue.works[0])
    there = []

    def thread() -> None:
        for _ in range(2):
            made(queue.works)
            gc.collect()
            there.append(first() is not None)

    gloo = threading.Thread(target=thread)
    gloo.start()
    gloo.join()
    assert there == [True, False]
