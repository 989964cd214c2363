"""What sees a worker's steps, data waits and saves, from inside the script's own process.

A guest: one self-contained file, standard library only, CPython 3.8 on, loaded by absolute path as
``_brain_probe``. It never imports torch; it waits until the script does and then hangs itself
into the global optimizer hooks, the DataLoader's iterator and the save and load functions. It
never raises into training and never blocks it, except to park a worker when the agent asks.
What it writes, and to whom, stands in docs/reference/protocols.md.

The hooks only count: they append one tuple per step, and a daemon thread makes samples of them.
On sampled steps, a few in a hundred or less, the norms of gradients are read as they pass by
(``Gradients``); no gradient is kept, changed, or exchanged for it.
No module that scripts like to name their own files after (random, statistics, queue) is imported.
"""

from __future__ import annotations

import atexit
import collections
import functools
import json
import mmap
import os
import socket
import sys
import threading
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

#: Versions of the messages and of the control file that this file speaks.
VERSION, LAYOUT = 1, 2
#: First steps of a process: allocators, autotuners and caches are still filling.
WARMUP_STEPS = 5
#: Nanoseconds that a window of steps lasts at least.
WINDOW_NS = 1_000_000_000
#: Steps of a window that its medians are taken over; sorting more would hold the interpreter.
WINDOW_STEPS = 1000
#: Samples kept while nobody listens.
UNSENT = 256
#: Errors of our own after which the probe switches itself off.
FAILURES = 10
#: Steps of another optimizer without one of the main optimizer after which it takes over.
SWITCH_STEPS = 50
#: Steps between those whose gradients are read, at least. Only powers of two are used, so that all
#: ranks read the same steps: in a synchronous job everybody waits for one that reads alone.
GRADIENT_STEPS = 16
#: Nanoseconds per step that reading gradients may cost on average; rarer sampling makes it so.
GRADIENT_NS = 12_000
#: Nanoseconds between steps whose gradients are read, at least.
GRADIENT_PAUSE_NS = 100_000_000
#: What a hook costs outside of its own body, in nanoseconds: autograd's call of it.
HOOK_NS = 1_500
#: Steps after which it is looked again whether gradients can be compared, where they could not.
RETRY_STEPS = 1024
#: Attempts in a row that came to nothing after which the reason is told.
ATTEMPTS = 4
#: Communication hooks after which every worker has the mean gradient, but for rounding.
AVERAGING = {"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"}
#: Exit code of a worker whose lease ran out, as the launcher's watch has it.
LEASE_OVER = 83
#: Distinct files whose loading is announced; data sets may be loaded file by file.
LOADS = 4096
#: Seconds between looks at a declared checkpoint, and between attempts to send what is unsent.
LOOK_SECONDS = 0.25
#: Seconds between attempts while a listener's queue is full; some hold ten datagrams.
BUSY_SECONDS = 0.01

# 8-byte fields of the control file.
_VERSION, _PARK, _LEASE, _STEPS, _LAST, _SAVED, _PARKED, _FIRST = range(8)
_LIFE, _DOING, _WAITED, _WAITS = range(10, 14)
_FIELDS = 16
_PHASES = ("training", "warmup", "checkpoint", "evaluation")
_TRAINING, _WARMUP, _CHECKPOINT, _EVALUATION = range(4)

_probe: Probe | None = None


def start(config: dict[str, Any]) -> None:
    """Begin to observe this process; ``config`` is BRAIN_WORKER, parsed. Never raises.

    ``BRAIN_PROBE=0`` switches it off. A child of an observed process is no rank: one that was
    forked is disarmed, any other does not find BRAIN_WORKER in its environment.
    """
    global _probe
    try:
        if os.environ.get("BRAIN_PROBE") == "0":
            return
        if config.get("v") != VERSION or not hasattr(socket, "AF_UNIX") or _probe is not None:
            return
        _probe = Probe(config, os.environ)
        _probe.install()
    except Exception:  # noqa: BLE001 - a failing probe costs the telemetry, never the job
        _probe = None


def saved(path: str) -> None:
    """Say that a checkpoint is complete at ``path``, for scripts that save by unknown means."""
    if _probe is not None:
        _probe.wrote(os.fspath(path), 0)


class Probe:
    """The state of one observed process; hooks run on the script's threads."""

    def __init__(self, config: dict[str, Any], environ: Mapping[str, str]) -> None:
        self.armed = True
        self.config = config
        self.rank = int(environ.get("RANK", 0))
        self.local_rank = int(environ.get("LOCAL_RANK", 0))
        self.processes = int(environ.get("WORLD_SIZE", 1))
        self.control = _control(config.get("control"))
        self.sender = Sender(self)
        self.failures = 0
        self.steps = 0
        # The step: that of the optimizer with most parameters.
        self.main = 0
        self.main_size = -1
        self.main_alive: Any = None
        self.others: dict[int, int] = {}  # id -> steps since the main optimizer's last one
        # The interval since the last step.
        self.since = 0
        self.loaders: dict[int, list[Any]] = {}  # loader -> [micro-batches, wait, examples, batch]
        self.newest_loader = 0
        # Loader -> steps before which it was read, where several are read for one step.
        self.rounds: dict[int, int] = {}
        self.evaluating = False
        self.saving = False
        self.thread = 0
        # The window of steps.
        self.window: list[tuple[Any, ...]] = []
        self.opened = 0
        # Saves that wait for their final name, and what was told already.
        self.saves: collections.deque[tuple[Any, ...]] = collections.deque()
        self.loads: set[tuple[str, int]] = set()
        self.nested = threading.local()
        self.writing = 0
        self.gradients = Gradients(self)

    def install(self) -> None:
        """Wait for the modules that we observe, say hello, and stay out of children."""
        finder = _Finder(self)
        sys.meta_path.insert(0, finder)
        for name in list(finder.actions):
            if name in sys.modules:
                finder.act(name, sys.modules[name])
        os.register_at_fork(after_in_child=self.disarm)
        atexit.register(self.finish)
        self.sender.tell("started", pid=os.getpid())

    def disarm(self) -> None:
        """Observe nothing any more; every hook then returns at once."""
        self.armed = False

    def finish(self) -> None:
        """The process ends: a boundary for the last save, and the end of the last window."""
        if not self.armed:
            return
        try:
            self._announce_saves(last=True)
            self._close_window(time.monotonic_ns())
            self.armed = False
            self.sender.flush()
        except Exception:  # noqa: BLE001 - an exit code is worth more than the last sample
            self.armed = False

    def failed(self, where: str, error: Exception) -> None:
        """Count an error of our own, tell the first, and stop observing after too many."""
        try:
            self.failures += 1
            if self.failures >= FAILURES:
                self.armed = False
            if self.failures == 1 or not self.armed:
                said = "%s: %s" % (type(error).__name__, error)
                self.sender.tell("failing", where=where, error=said[:500], disarmed=not self.armed)
        except Exception:  # noqa: BLE001 - an error whose text cannot be had, for example
            self.armed = False

    def check_lease(self) -> None:
        """End this process if its lease is over: one that was stopped and goes on must neither
        step nor save beside its successors until the watch gets its turn."""
        lease = self.control[_LEASE]
        if lease and time.monotonic_ns() > lease:
            os._exit(LEASE_OVER)

    # -- optimizer steps ----------------------------------------------------------------------

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """A step boundary: saves have their final names, and a worker may be parked."""
        if not self.armed:
            return
        path, park = None, False
        try:
            self.check_lease()
            if not self.since:
                self.since = time.monotonic_ns()
            if self.gradients.handles and id(optimizer) == self.main:
                self.gradients.close()
            if self.saves:
                path = self._announce_saves()
            if self.control[_PARK]:
                park = path is not None or self.control[_PARK] == 2
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("before_step", error)
        if park:
            # Not guarded: what a signal handler raises while we wait belongs to the script.
            self._park(path)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Count a completed step, if it is one of the main optimizer."""
        if not self.armed:
            return
        try:
            if id(optimizer) == self.main or self._takes_over(optimizer):
                self._count(time.monotonic_ns())
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("after_step", error)

    def _takes_over(self, optimizer: Any) -> bool:
        """Decide whether this optimizer is the main one from now on, and counts this step."""
        key = id(optimizer)
        stepped = self.others.get(key)
        gone = self.main_alive is not None and self.main_alive() is None
        size = _parameters(optimizer) if stepped is None or stepped >= SWITCH_STEPS or gone else 0
        larger = stepped is None and size > self.main_size
        idle = stepped is not None and stepped >= SWITCH_STEPS
        if not (larger or idle or gone):
            self.others[key] = (stepped or 0) + 1
            return False
        self.others[self.main] = 0
        # A larger one that is new closes the round that a smaller one has already counted.
        counts = self.steps == 0 or idle or gone
        self.main, self.main_size, self.main_alive = key, size, weakref.ref(optimizer)
        return counts

    def _count(self, now: int) -> None:
        micro = wait = examples = 0
        batch = None
        if self.loaders:
            micro, wait, examples, batch = self._read()
        self.steps = steps = self.steps + 1
        if self.gradients.closed:
            self.gradients.conclude(micro, examples, batch)
        if self.others:
            self.others = dict.fromkeys(self.others, 0)
        self.control[_STEPS] = steps
        self.control[_LAST] = now
        self.control[_DOING] = 0
        if steps <= WARMUP_STEPS:
            phase = _WARMUP
        elif self.saving:
            phase = _CHECKPOINT
        else:
            phase = _EVALUATION if self.evaluating else _TRAINING
        self.window.append((phase, now - self.since, wait, micro, examples, batch))
        if steps >= self.gradients.due:
            self.gradients.open(steps, now)
        self.since = now
        self.saving = self.evaluating = False
        if now - self.opened >= WINDOW_NS:
            self._close_window(now)
        if steps == 1:
            self._first(now)

    def _first(self, now: int) -> None:
        self.thread = threading.get_ident()
        self.control[_FIRST] = now
        self.sender.tell("stepping")
        self.sender.start()

    def _close_window(self, now: int) -> None:
        if self.window:
            told = self.gradients.told()
            self.sender.hand(("steps", now, self.steps, self.window, told))
            self.window = []
        self.opened = now

    def _park(self, path: str | None) -> None:
        control = self.control
        began = time.monotonic_ns()
        control[_PARKED] = 1
        try:
            self.sender.tell("parked", step=self.steps, path=path)
            while control[_PARK]:
                time.sleep(0.002)
        finally:
            control[_PARKED] = 0
            self.since += time.monotonic_ns() - began

    # -- data ---------------------------------------------------------------------------------

    def after_next(self, iterator: Any, data: Any, began: int) -> None:
        """Count a batch that a loader gave; without gradients it is one of an evaluation."""
        try:
            self.control[_LIFE] = time.monotonic_ns()
            if not sys.modules["torch"].is_grad_enabled():
                self.evaluating = True
                self.control[_DOING] = 2
                return
            if not self.since:
                self.since = began
            sampler = iterator._index_sampler
            batch = _batch_size(data)
            if batch is None:
                batch = getattr(sampler, "batch_size", None)
            key = self.newest_loader = id(sampler)
            read = self.loaders.get(key)
            if read is None:
                read = self.loaders[key] = [0, 0, 0, None]
            read[0] += 1
            # A thread that reads ahead waits for data, training does not.
            if not self.thread or threading.get_ident() == self.thread:
                read[1] += time.monotonic_ns() - began
            read[2] += batch or 0
            read[3] = batch
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("after_next", error)

    def _read(self) -> list[Any]:
        """What was read for this step. Of several loaders the newest one feeds it, ones that are
        read before most steps as well go along with it, others were an evaluation."""
        if len(self.loaders) == 1:
            return self.loaders.popitem()[1]
        read = self.loaders.pop(self.newest_loader)
        for key, other in self.loaders.items():
            self.rounds[key] = self.rounds.get(key, 0) + 1
            if 2 * self.rounds[key] > self.steps:
                read[1] += other[1]
            else:
                self.evaluating = True
        self.loaders.clear()
        return read

    # -- saves and loads ----------------------------------------------------------------------

    def wrote(self, file: Any, seconds_ns: int, step: int | None = None) -> None:
        """Remember a file or directory that was written, until the next boundary; ``step`` where
        it is known to have been complete for a while."""
        try:
            path = _path_of(file)
            if not self.armed or path is None:
                return
            here = not self.thread or threading.get_ident() == self.thread
            self.saving = self.saving or here
            # Another thread may rename it only after the step that is under way.
            due = self.steps + (0 if here or step is not None else 1)
            seconds = seconds_ns / 1e9 if here else 0.0
            at = self.steps if step is None else step
            self.saves.append((path, _identity(path), at, seconds, due))
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("wrote", error)

    def read(self, file: Any) -> None:
        """Announce a file or directory that was loaded, once."""
        try:
            path = _path_of(file)
            if not self.armed or path is None or len(self.loads) >= LOADS:
                return
            inode = _inode(path)
            self.control[_LIFE] = time.monotonic_ns()
            if (path, inode) not in self.loads:
                self.loads.add((path, inode))
                self.sender.tell("loaded", path=path, inode=inode)
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("read", error)

    def _announce_saves(self, last: bool = False) -> str | None:
        """Tell the saves that are due under their final names; return the last one's."""
        told, waiting = None, []
        while self.saves:
            save = self.saves.popleft()
            path, identity, step, seconds, due = save
            if due > self.steps and not last:
                waiting.append(save)
                continue
            final = _final_name(path, identity)
            if final is None:
                continue
            told = final
            size = _size(final)
            self.control[_SAVED] = step
            self.sender.told_save(final)
            fields = {"path": final, "step": step}
            self.sender.tell("saved", seconds=seconds, bytes=size, replaced=final != path, **fields)
            self.sender.hand(
                ("save", time.monotonic_ns(), dict(fields, save_seconds=seconds, size_bytes=size))
            )
        self.saves.extend(waiting)
        return told


class _Unavailable(Exception):
    """Why gradients of this job cannot be compared."""


class _Odd(_Unavailable):
    """Why those of one step cannot; unless all steps are alike it is of no interest."""


class Gradients:
    """Compares gradients of one micro-batch with those of a whole step, on sampled steps.

    Under DistributedDataParallel a worker sees its own gradient as it arrives at a parameter, and
    the mean over all workers when the backward pass ends; with accumulation, that of each
    micro-batch and their mean. The difference of their squared norms is gradient noise (McCandlish
    et al., 2018, appendix A.1; ``brain.models.efficiency``). Nothing is exchanged for it, and
    both are read in the same backward passes: what a script does to gradients afterwards (clip,
    unscale, zero) does not matter, and a loss scale cancels but for its changes.

    Hooks hang in parameters for a sampled step only. Where a gradient is not what the estimate
    needs, the step is dropped; where it never is, the reason is told and nothing is guessed.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.networks: Any = weakref.WeakSet()
        self.scalers: Any = weakref.WeakSet()
        # The step after which the next one may be sampled, and how many lie between two.
        self.due = WARMUP_STEPS
        self.every = GRADIENT_STEPS
        self.off = False
        self.resume = 0
        self.costs: collections.deque[int] = collections.deque(maxlen=5)
        self.spent = 0
        self.opened = (0, 0)  # steps and time at the last sample
        # What is sampled, looked up anew now and then; weakly, for nobody may be kept alive by us.
        self.network: Any = None
        self.parameters: list[Any] = []
        self.looked = 0
        # The sampled step.
        self.handles: list[Any] = []
        self.closed = False
        self.timing = False
        self.queued = False
        self.norms: list[list[Any]] = []
        self.big: list[Any] = []
        self.kept = 0  # parameters whose gradient was there before the first of the step
        self.before: list[Any] = []  # norms of what was there, of one parameter
        self.watched = 0
        self.passes = 1
        self.newest = -1
        self.last = -1  # the parameter whose gradient comes last
        self.mark: Any = None
        self.ends: list[Any] = []
        # Results: on their way from a device, and for the next window.
        self.waiting: collections.deque[tuple[Any, ...]] = collections.deque()
        self.found: list[tuple[int, float, int, float]] = []
        self.waits: list[int] = []
        self.reason: str | None = None
        self.misses = 0
        self.stream: Any = None

    # -- for the hooks of a step ------------------------------------------------------------------

    def open(self, steps: int, now: int) -> None:
        """After a step: hang hooks in for the next one, if it is to be sampled."""
        half = GRADIENT_STEPS // 2
        self.due = steps - steps % half + half
        if self.off or steps < self.resume:
            return
        full = steps % self.every == 0
        if full or (self.last >= 0 and steps % (2 * GRADIENT_STEPS) == half):
            self._guarded(self._open, steps, now, not full)

    def close(self) -> None:
        """Before the step: take the hooks out again."""
        self._guarded(self._close)

    def conclude(self, micro: int, examples: int, batch: int | None) -> None:
        """After the step: make a result of what was read, given what loaders gave for it."""
        self._guarded(self._conclude, micro, examples, batch)
        if not self.timing:
            hooks = sum(len(norms) + 1 for norms in self.norms)
            self.costs.append(self.spent + HOOK_NS * hooks)
            self._pace()
        self.norms, self.big, self.before, self.ends = [], [], [], []
        self.spent = 0

    def told(self) -> tuple[Any, ...]:
        """What a window of steps found out: norms, waits in nanoseconds, why there are none."""
        if self.waiting:
            self._guarded(self._poll)
        reason = self.reason if self.misses >= ATTEMPTS else None
        told = (self.found, self.waits, reason)
        self.found, self.waits = [], []
        return told

    def _guarded(self, act: Callable[..., None], *args: Any) -> None:
        began = time.perf_counter_ns()
        try:
            act(*args)
        except _Unavailable as why:
            self._give_up(str(why), isinstance(why, _Odd))
        except Exception as error:  # noqa: BLE001 - never into training, least of all into autograd
            self.off = True
            self._give_up("the probe failed at it: %s" % type(error).__name__)
            self.probe.failed("gradients", error)
        self.spent += time.perf_counter_ns() - began

    def _give_up(self, why: str, odd: bool = False) -> None:
        """Drop the sampled step; unless only it was odd, look again much later."""
        self._unhook()
        self.closed = False
        self.reason = why
        self.misses = self.misses + 1 if odd else ATTEMPTS
        self.looked = 0
        if self.misses >= ATTEMPTS:
            self.resume = self.probe.steps + RETRY_STEPS

    def _unhook(self) -> None:
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()

    def _pace(self) -> None:
        """Choose how many steps lie between samples: by their cost, and by time."""
        steps, at = self.opened
        now = time.monotonic_ns()
        step_ns = max(1, now - at) / max(1, self.probe.steps - steps)
        self.opened = (self.probe.steps, now)
        least = max(sorted(self.costs)[len(self.costs) // 2] / GRADIENT_NS, 1)
        if steps:
            least = max(least, GRADIENT_PAUSE_NS / step_ns)
        self.every = GRADIENT_STEPS
        while self.every < least and self.every < 1 << 20:
            self.every *= 2

    # -- a sampled step ---------------------------------------------------------------------------

    def _open(self, steps: int, now: int, timing: bool) -> None:
        self._unhook()
        self.spent = 0
        self.looked -= 1
        if self.looked < 0 or any(each() is None for each in self.parameters):
            self._look()
            self.looked = 16
        if not timing and self.opened[0] == 0:
            self.opened = (steps, now)
        self.timing, self.closed, self.queued = timing, False, False
        self.ends, self.mark = [], None
        if timing:
            self._hook(self.last)
            return
        self.norms, self.big, self.kept = [[] for _ in self.parameters], [], 0
        self.before, self.newest = [], -1
        for index in range(len(self.parameters)):
            self._hook(index)

    def _hook(self, index: int) -> None:
        parameter = self.parameters[index]()
        if parameter is not None and parameter.requires_grad:
            hook = functools.partial(self._arrived, index)
            # torch.save then does not warn that it leaves the hook out.
            hook.__torch_unserializable__ = True  # type: ignore[attr-defined]
            self.handles.append(parameter.register_hook(hook))

    def _look(self) -> None:
        """Find the parameters, and whether their gradients become the mean of all workers'."""
        probe = self.probe
        optimizer = probe.main_alive() if probe.main_alive is not None else None
        if optimizer is None:
            raise _Unavailable("the optimizer is gone")
        own = [each for group in optimizer.param_groups for each in group["params"]]
        own = [each for each in own if each.requires_grad]
        for each in own:
            if hasattr(each, "device_mesh") or getattr(each, "_fsdp_flattened", False):
                raise _Unavailable("parameters are sharded (FSDP or tensor parallelism)")
            if hasattr(each, "ds_id"):
                raise _Unavailable("parameters are sharded (DeepSpeed ZeRO)")
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        if getattr(compiled, "compiled_autograd_enabled", False):
            raise _Unavailable("compiled autograd calls no hooks of single steps")
        network = self._network({id(each) for each in own})
        self.network = None if network is None else weakref.ref(network)
        if network is not None:
            own = [each for each in network.parameters() if each.requires_grad]
        elif probe.processes > 1:
            raise _Unavailable("no DistributedDataParallel around the optimizer's parameters")
        if len(own) != len(self.parameters) or any(
            known() is not each
            for known, each in zip(self.parameters, own)  # noqa: B905
        ):
            self.parameters, self.last = [weakref.ref(each) for each in own], -1
        wide = [index for index, each in enumerate(own) if each.dim() > 1]
        self.watched = wide[0] if wide else 0

    def _network(self, wanted: set[int]) -> Any:
        """The DistributedDataParallel that holds all of these parameters; None where none does."""
        for network in list(self.networks):
            if not wanted <= {id(each) for each in network.parameters()}:
                continue
            if network.process_group.size() != self.probe.processes:
                raise _Unavailable("DistributedDataParallel spans a part of the world only")
            if getattr(network, "mixed_precision", None) is not None:
                raise _Unavailable("DistributedDataParallel with mixed_precision")
            if getattr(network, "parameters_to_ignore", None):
                raise _Unavailable("DistributedDataParallel ignores some parameters")
            hooks = [getattr(each, "__qualname__", "?") for each in _communication_hooks(network)]
            foreign = [each for each in hooks if each not in AVERAGING]
            if foreign:
                raise _Unavailable("the script's communication hook %s" % foreign[0])
            return network
        return None

    def _arrived(self, index: int, gradient: Any) -> None:
        """A gradient comes to a parameter, in a backward pass."""
        if self.handles and self.probe.armed:
            self._guarded(self._time if self.timing else self._read, index, gradient)

    def _time(self, index: int, gradient: Any) -> None:
        self._follow()
        self.mark = self._instant(gradient.is_cuda)

    def _read(self, index: int, gradient: Any) -> None:
        torch = sys.modules["torch"]
        self._follow()
        self.newest = index
        norms = self.norms[index]
        earlier = self.parameters[index]().grad
        if earlier is None:
            # The first of this step, or what came before was dropped by the script.
            del norms[:]
        elif not norms:
            self.kept += 1
        if earlier is not None and index == self.watched:
            self.before.append(_norm(torch, earlier))
        norms.append(_norm(torch, gradient))

    def _follow(self) -> None:
        """Have ``_over`` called behind what others (DistributedDataParallel) do at the end."""
        if not self.queued:
            self.queued = True
            engine = sys.modules["torch"].autograd.Variable._execution_engine
            engine.queue_callback(functools.partial(self._over, 2))

    def _over(self, more: int) -> None:
        """A backward pass ends; those before us in the queue may queue something themselves."""
        if self.handles and self.probe.armed:
            self._guarded(self._over_now, more)

    def _over_now(self, more: int) -> None:
        if more:
            engine = sys.modules["torch"].autograd.Variable._execution_engine
            engine.queue_callback(functools.partial(self._over, more - 1))
            return
        self.queued = False
        self.big = []
        network = self.network and self.network()
        if network is not None and not (
            network.require_backward_grad_sync
            and getattr(network, "require_forward_param_sync", True)
        ):
            return
        if self.timing:
            self.ends.append((self.mark, self._instant(not isinstance(self.mark, int))))
        elif max(map(len, self.norms)) >= self.passes:
            torch = sys.modules["torch"]
            read = [each() for each, norms in zip(self.parameters, self.norms) if norms]  # noqa: B905
            if not any(each is None or each.grad is None for each in read):
                self.big = _norms(torch, [each.grad for each in read])

    def _instant(self, cuda: bool) -> Any:
        if not cuda:
            return time.perf_counter_ns()
        event = sys.modules["torch"].cuda.Event(enable_timing=True)
        event.record()
        return event

    def _close(self) -> None:
        self._unhook()
        self.closed = True

    def _conclude(self, micro: int, examples: int, batch: int | None) -> None:
        self.closed = False
        if self.timing:
            if self.ends and self.probe.processes > 1:
                self.waiting.append((self.ends[-1][1], self.ends[-1], None, 0, 0))
        else:
            self._weigh(micro, examples, batch)
        if self.waiting:
            self._poll()

    def _weigh(self, micro: int, examples: int, batch: int | None) -> None:
        """Sum up the norms of a step that is as it must be."""
        fired = [norms for norms in self.norms if norms]
        if not fired:
            raise _Unavailable("no gradient came to the optimizer's parameters by backward()")
        passes = max(map(len, fired))
        usual, self.passes = self.passes <= passes, passes
        if passes == 1 and self.probe.processes == 1:
            raise _Unavailable("one worker without accumulation")
        if not batch:
            raise _Unavailable("no batch size was seen")
        self._check(fired, passes, micro)
        if not usual or passes * batch != examples:
            return  # the last batches of an epoch, which are fewer or smaller
        torch = sys.modules["torch"]
        scalers = [each for each in list(self.scalers) if getattr(each, "_scale", None) is not None]
        if len(scalers) > 1:
            raise _Unavailable("several gradient scalers")
        sums = [_squares(torch, [norm for norms in fired for norm in norms])]
        sums += [_squares(torch, self.big)]
        sums += [each._scale.detach().to(sums[0]) for each in scalers]
        scale = len(sums)
        # Where gradients are zeroed in place, the first must find zeros and no other may.
        if self.kept:
            sums += [each.double() for each in self.before]
        values = torch.stack(sums)
        ready = self._instant(True) if values.is_cuda else None
        self.waiting.append((ready, values, scale, passes, batch))
        self.last = self.newest

    def _check(self, fired: list[Any], passes: int, micro: int) -> None:
        """Refuse a step in which gradients are not one per parameter and micro-batch."""
        if min(map(len, fired)) != passes:
            raise _Odd("some parameters take part in some backward passes of a step only")
        if passes != micro:
            raise _Odd("%d backward passes for %d batches of a step" % (passes, micro))
        if len(self.big) != len(fired):
            raise _Odd("the step does not follow an averaging backward pass")
        if self.kept not in (0, len(fired)) or (self.kept and len(self.before) != passes):
            raise _Odd("some parameters keep gradients from step to step")
        if self.network is None and any(self.probe.others.values()):
            raise _Odd("several optimizers share the network's parameters")

    def _poll(self) -> None:
        """Take the results that a device has ready; nobody waits for one that has not."""
        while self.waiting:
            ready, values, scale, passes, batch = self.waiting[0]
            if ready is not None and not isinstance(ready, int) and not ready.query():
                if len(self.waiting) > 64:
                    self.waiting.popleft()
                return
            self.waiting.popleft()
            if scale is None:
                began, ended = values
                device = not isinstance(began, int)
                took = int(began.elapsed_time(ended) * 1e6) if device else ended - began
                self.waits.append(max(0, took))
                self.probe.control[_WAITED] += max(0, took)
                self.probe.control[_WAITS] += 1
            else:
                self._result(self._numbers(values), scale, passes, batch)

    def _numbers(self, values: Any) -> list[float]:
        if not values.is_cuda:
            return list(values.tolist())
        # On a stream of our own, which has nothing to wait for.
        cuda = sys.modules["torch"].cuda
        if self.stream is None:
            self.stream = cuda.Stream(values.device)
        with cuda.stream(self.stream):
            return list(values.tolist())

    def _result(self, values: list[float], scale: int, passes: int, batch: int) -> None:
        small, big = values[0] / passes, values[1] / passes**2
        before = values[scale:]
        if before and (before[0] != 0 or 0.0 in before[1:]):
            raise _Odd("gradients are zeroed between the backward passes of a step")
        factor = 1.0 if scale == 2 else values[2] ** 2
        small, big = small / factor, big / factor
        # Infinite where the scale was too large; that step is skipped by the script, too.
        if 0 < small < float("inf") and 0 < big < float("inf"):
            workers = self.probe.processes if self.network is not None else 1
            self.found.append((batch, small, workers * passes * batch, big))
            self.reason, self.misses = None, 0


def _communication_hooks(network: Any) -> list[Any]:
    """Hooks that a script registered with DistributedDataParallel; builtin ones all average."""
    return [hook for hook, _ in getattr(network, "_comm_hooks", ())]


def _norm(torch: Any, gradient: Any) -> Any:
    """The norm of a gradient as a tensor where it lies, in single precision at least."""
    if gradient.layout is not torch.strided:
        raise _Unavailable("sparse gradients")
    if gradient.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            raise _Unavailable("steps are captured in CUDA graphs")
    elif gradient.device.type != "cpu":
        raise _Unavailable("gradients on a device of type %s" % gradient.device.type)
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32 if half else None)


def _norms(torch: Any, gradients: list[Any]) -> list[Any]:
    """The norms of many gradients of full precision at once, if torch can."""
    together = getattr(torch, "_foreach_norm", None)
    full = (torch.float32, torch.float64)
    if together is None or not all(
        each.dtype in full and each.layout is torch.strided for each in gradients
    ):
        return [_norm(torch, each) for each in gradients]
    with torch.no_grad():
        return list(together(gradients))


def _squares(torch: Any, norms: list[Any]) -> Any:
    """The sum of the squares of norms, which must lie on one device."""
    if len({each.device for each in norms}) > 1:
        raise _Unavailable("gradients on several devices")
    return torch.stack(norms).double().square().sum()


class Sender:
    """Tells agent and collector; its thread makes samples of windows, and never blocks."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.agent = probe.config.get("agent")
        self.collector = probe.config.get("collector")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.handed: collections.deque[tuple[Any, ...]] = collections.deque()
        self.unsent: collections.deque[bytes] = collections.deque()  # samples for the collector
        self.untold: collections.deque[bytes] = collections.deque(
            maxlen=UNSENT
        )  # events for the agent
        self.dropped = 0
        self.wake = threading.Event()
        self.lock = threading.Lock()
        # Reentrant: a signal handler of the script may load a file while we tell something.
        self.telling = threading.RLock()
        self.declared = _Declared(probe.config.get("checkpoint") if probe.rank == 0 else None)
        self._new_source()

    def _new_source(self) -> None:
        self.source = os.urandom(8).hex()
        self.sequence = 0
        self.measured_us = 0

    def start(self) -> None:
        """Begin to send; called at the first step, so that scripts without steps get no thread."""
        threading.Thread(target=self._run, name="brain-probe", daemon=True).start()

    def hand(self, measured: tuple[Any, ...]) -> None:
        """Take something measured, on a thread of the script: one append."""
        self.handed.append(measured)
        self.wake.set()

    def tell(self, event: str, **fields: Any) -> None:
        """Send an event to the agent now; keep it for the thread if the agent is busy."""
        if self.agent is None:
            return
        probe = self.probe
        head = {"v": VERSION, "rank": probe.rank, "local_rank": probe.local_rank}
        fields.update(head, epoch=probe.config["epoch"], event=event)
        self.untold.append(json.dumps(fields).encode())
        with self.telling:
            self._drain(self.untold, self.agent)

    def told_save(self, path: str) -> None:
        """A save was seen by itself, so the declared checkpoint needs no guess."""
        self.declared.seen(path)

    def flush(self) -> None:
        """Send what is left, at exit; waits a second at most, for listeners that are busy."""
        until = time.monotonic() + 1.0
        while self._turn() and time.monotonic() < until:
            time.sleep(BUSY_SECONDS)

    def _run(self) -> None:
        probe = self.probe
        busy = False
        while probe.armed:
            rest = self.unsent or self.untold or self.dropped or self.declared.path
            self.wake.wait(BUSY_SECONDS if busy else LOOK_SECONDS if rest else None)
            self.wake.clear()
            try:
                if not probe.writing and not probe.saves:
                    step = self.declared.changed(probe.steps)
                    if step is not None:
                        probe.wrote(self.declared.path, 0, step)
                busy = self._turn()
            except Exception as error:  # noqa: BLE001 - a thread of ours must not print a traceback
                probe.failed("sender", error)

    def _turn(self) -> bool:
        """Encode and send; True where a listener is there, but its queue is full."""
        with self.lock:
            while self.handed:
                for kind, at_ns, fields in _samples(self.handed.popleft()):
                    self._keep(self._encode(kind, at_ns, fields))
            if self.dropped and len(self.unsent) < UNSENT:
                lost = {"where": "probe", "dropped": self.dropped}
                self.dropped = 0
                self.unsent.append(self._encode("loss", time.monotonic_ns(), lost))
            busy = self._drain(self.unsent, self.collector)
        with self.telling:
            return self._drain(self.untold, self.agent) or busy

    def _keep(self, line: bytes) -> None:
        self.unsent.append(line)
        if len(self.unsent) > UNSENT:
            self.unsent.popleft()
            self.dropped += 1

    def _drain(self, lines: collections.deque[bytes], address: str | None) -> bool:
        while lines and address is not None:
            try:
                self.socket.sendto(lines[0], address)
            except OSError as error:
                return isinstance(error, BlockingIOError)
            lines.popleft()
        return False

    def _encode(self, kind: str, at_ns: int, fields: dict[str, Any]) -> bytes:
        probe, config = self.probe, self.probe.config
        at_us = (time.time_ns() - (time.monotonic_ns() - at_ns)) // 1000
        if at_us < self.measured_us - 1_000_000:
            # The clock was set back; a new source keeps (source, measured_at) true and unique.
            self._new_source()
        self.measured_us = at_us = max(at_us, self.measured_us + 1)
        own = {"job": config["job"], "source": self.source}
        if kind == "loss":
            fields = dict(fields, **own)
        else:
            world = {key: config[key] for key in ("replica", "epoch", "generation")}
            place = dict(own, local_rank=probe.local_rank, rank=probe.rank, **world)
            fields = dict(fields, place=place)
        if kind == "throughput":
            world = {key: config[key] for key in ("nodes", "replicas", "accelerator")}
            fields.update(world, processes=probe.processes)
        seconds, micros = divmod(at_us, 1_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        fields.update(kind=kind, sequence=self.sequence, measured_at="%s.%06dZ" % (stamp, micros))
        self.sequence += 1
        return json.dumps(fields).encode()


class _Declared:
    """Watches a declared checkpoint for writes by means that we do not see (np.save …)."""

    def __init__(self, path: str | None) -> None:
        self.path = os.path.abspath(path) if path else None
        self.known: Any = _print_of(self.path)
        self.last = self.known
        self.unchanged_steps = 0

    def seen(self, path: str) -> None:
        """This path was saved by means that we see; what it changed here is no news."""
        if self.path and (path + os.sep).startswith(self.path + os.sep):
            self.known = None

    def changed(self, steps: int) -> int | None:
        """The steps so far before a change, once two looks in a row found the same; else None."""
        if self.path is None:
            return None
        now = _print_of(self.path)
        stable, self.last = now == self.last, now
        if now == self.known:
            self.unchanged_steps = steps
        if not stable or now == self.known:
            return None
        news = self.known is not None and now != ()
        self.known = now
        return self.unchanged_steps if news else None


class _Finder:
    """Hangs an action behind the first import of each module that we observe."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.actions = {
            "torch.optim.optimizer": _hook_optimizers,
            "torch.nn.parallel.distributed": _remember("DistributedDataParallel", "networks"),
            "torch.amp.grad_scaler": _remember("GradScaler", "scalers"),
            "torch.utils.data.dataloader": _hook_loaders,
            "torch.serialization": _hook_files({"save": _argument(1, "f")}, _argument(0, "f")),
            "torch.distributed.checkpoint.state_dict_saver": _hook_files({"save": _checkpoint}),
            "torch.distributed.checkpoint.state_dict_loader": _hook_files({}, _checkpoint),
            "safetensors.torch": _hook_files(
                {"save_file": _argument(1, "filename")}, _argument(0, "filename"), "load_file"
            ),
        }
        self.actions["safetensors.numpy"] = self.actions["safetensors.torch"]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Let the others find it, and act after its code has run."""
        if name not in self.actions or not self.probe.armed:
            return None
        # Those before have been asked; another that acts likewise must not ask us in turn.
        behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else len(sys.meta_path)
        for finder in sys.meta_path[behind:]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(name, spec.loader)
                return spec
        return None

    def _follow(self, name: str, loader: Any) -> None:
        # On the instance, so that the module keeps a loader of its ordinary type.
        try:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.act(name, module)

            loader.exec_module = exec_module
        except AttributeError as error:
            self.probe.failed(name, error)

    def act(self, name: str, module: Any) -> None:
        """Instrument one module that has run."""
        try:
            self.actions[name](self.probe, module)
        except Exception as error:  # noqa: BLE001 - an import must not fail through us
            self.probe.failed(name, error)


def _hook_optimizers(probe: Probe, module: Any) -> None:
    before, after = probe.before_step, probe.after_step

    def brain_before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        before(optimizer, args, kwargs)

    def brain_after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        after(optimizer, args, kwargs)

    for hook in (brain_before_step, brain_after_step):
        # torch.compile runs such functions as they are instead of tracing them.
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch's mark
    module.register_optimizer_step_pre_hook(brain_before_step)
    module.register_optimizer_step_post_hook(brain_after_step)


def _hook_loaders(probe: Probe, module: Any) -> None:
    base = module._BaseDataLoaderIter
    original = base.__next__

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        began = time.monotonic_ns()
        data = original(self)
        if probe.armed:
            probe.after_next(self, data, began)
        return data

    base.__next__ = __next__


def _remember(name: str, into: str) -> Any:
    """An action that keeps, weakly, the instances of a class in a set of ``Gradients``."""

    def act(probe: Probe, module: Any) -> None:
        made = getattr(probe.gradients, into)
        kind = getattr(module, name)
        original = kind.__init__

        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            try:
                made.add(self)
            except Exception as error:  # noqa: BLE001 - a subclass that cannot be kept
                probe.failed(name, error)

        kind.__init__ = __init__

    return act


def _hook_files(savers: dict[str, Any], loaded: Any = None, loader: str = "load") -> Any:
    """An action that wraps the functions of a module which write and read checkpoints."""

    def act(probe: Probe, module: Any) -> None:
        for name, written in savers.items():
            _wrap(probe, module, name, _saving, written)
        if loaded is not None:
            _wrap(probe, module, loader, _loading, loaded)

    return act


def _wrap(probe: Probe, module: Any, name: str, around: Any, file_of: Any) -> None:
    original = getattr(module, name)
    wrapped = around(probe, original, file_of)
    # Where the module was imported before us, its parent may have taken the name already.
    for holder in (module, sys.modules.get(module.__name__.rpartition(".")[0])):
        if getattr(holder, name, None) is original:
            setattr(holder, name, wrapped)


def _saving(probe: Probe, original: Any, file_of: Any) -> Any:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        # A checkpoint of many parts is one save: parts are written within its call.
        if not probe.armed or getattr(probe.nested, "saving", False):
            return original(*args, **kwargs)
        probe.check_lease()
        probe.nested.saving = True
        probe.writing += 1
        began = time.monotonic_ns()
        probe.control[_LIFE], probe.control[_DOING] = began, 1
        try:
            result = original(*args, **kwargs)
        finally:
            probe.nested.saving = False
            probe.writing -= 1
            probe.control[_LIFE], probe.control[_DOING] = time.monotonic_ns(), 0
        probe.wrote(_Call(file_of, args, kwargs), time.monotonic_ns() - began)
        return result

    return save


def _loading(probe: Probe, original: Any, file_of: Any) -> Any:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        probe.read(_Call(file_of, args, kwargs))
        return result

    return load


class _Call:
    """The arguments of a save or load; looked at only where our errors are caught."""

    def __init__(self, file_of: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.file_of, self.args, self.kwargs = file_of, args, kwargs


def _argument(index: int, name: str) -> Any:
    def file_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[index] if len(args) > index else kwargs.get(name)

    return file_of


def _checkpoint(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The directory of a call of torch.distributed.checkpoint."""
    if kwargs.get("checkpoint_id") is not None:
        return kwargs["checkpoint_id"]
    storage = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    if storage is None and len(args) > 1:
        storage = args[1]
    return getattr(storage, "path", None)


def _path_of(file: Any) -> str | None:
    """The absolute path of a path or named file; None for buffers and remote places."""
    if isinstance(file, _Call):
        file = file.file_of(file.args, file.kwargs)
    if not isinstance(file, (str, bytes, os.PathLike)):
        file = getattr(file, "name", None)
        if not isinstance(file, (str, bytes)):
            return None
    path = os.path.abspath(os.fsdecode(file))
    # Parts of a distributed checkpoint, written by threads of its own.
    return path if os.path.exists(path) and not path.endswith(".distcp") else None


def _identity(path: str) -> tuple[Any, ...]:
    """(inode, inode of its directory), by which a renamed file is found again."""
    return _inode(path), os.stat(os.path.dirname(path)).st_ino


def _inode(path: str) -> int:
    """The inode of a file; of one that is in memory so far (``launcher/inject/shim.py``), that of
    the file on storage which it becomes."""
    shim = sys.modules.get("_brain_shim")
    return os.stat(path).st_ino if shim is None else int(shim.inode(path))


def _final_name(path: str, identity: tuple[Any, ...]) -> str | None:
    """The name under which the inode now is: the same, another in the same directory, or the
    same in a directory that was itself renamed; None where it is gone."""
    inode, directory_inode = identity
    directory, name = os.path.split(path)
    found = _named(directory, name, inode)
    if found is None:
        above, directory_name = os.path.split(directory)
        moved = _named(above, directory_name, directory_inode)
        found = None if moved is None else _named(moved, name, inode)
    return found


def _named(directory: str, name: str, inode: int) -> str | None:
    try:
        if _inode(os.path.join(directory, name)) == inode:
            return os.path.join(directory, name)
    except OSError:
        pass
    try:
        with os.scandir(directory) as entries:
            return next((entry.path for entry in entries if _inode_of(entry) == inode), None)
    except OSError:
        return None


def _inode_of(entry: os.DirEntry[str]) -> int:
    try:
        return _inode(entry.path) if entry.is_symlink() else entry.inode()
    except OSError:  # a link to nothing
        return entry.inode()


def _size(path: str) -> int:
    """Bytes of a file, or of all files below a directory."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    files = (os.path.join(top, name) for top, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files)


def _print_of(path: str | None) -> tuple[Any, ...]:
    """What tells one state of a file or directory from another; () where there is none."""
    try:
        if path is None:
            return ()
        if not os.path.isdir(path):
            seen = os.stat(path)
            return ((_inode(path), seen.st_mtime_ns, seen.st_size),)
        with os.scandir(path) as entries:
            return tuple(
                sorted((_inode_of(e), e.stat().st_mtime_ns, e.stat().st_size) for e in entries)
            )
    except OSError:
        return ()


def _control(path: str | None) -> Any:
    """The control file as numbers. Fields are native and aligned, so none is ever torn."""
    if path is None or sys.byteorder != "little":
        return [0] * _FIELDS
    with open(path, "r+b") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    return mapped if mapped[_VERSION] == LAYOUT else [0] * _FIELDS


def _parameters(optimizer: Any) -> int:
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])


def _batch_size(data: Any, depth: int = 0) -> int | None:
    """Examples in what a loader gave: the first dimension of the first tensor in it."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth == 3 or isinstance(data, (str, bytes)):
        return None
    if hasattr(data, "values"):
        data = data.values()
    elif not isinstance(data, (tuple, list)):
        return None
    sizes = (_batch_size(part, depth + 1) for part in data)
    return next((size for size in sizes if size is not None), None)


def _samples(measured: tuple[Any, ...]) -> list[Any]:
    """What was handed over, as (kind, monotonic nanoseconds, fields)."""
    if measured[0] == "save":
        return [measured]
    _, at_ns, step, window, gradients = measured
    phases: dict[int, list[Any]] = {}
    for entry in window:
        phases.setdefault(entry[0], []).append(entry)
    found = [
        ("throughput", at_ns, dict(_summary(entries), phase=_PHASES[phase], step=step))
        for phase, entries in sorted(phases.items(), reverse=True)
    ]
    # The last one is of training where any is.
    found[-1][2].update(_compared(*gradients))
    return found


def _compared(norms: list[Any], waits: list[int], reason: str | None) -> dict[str, Any]:
    """Means of gradient norms (batch, square, batch, square) of the usual batches, and waits."""
    fields: dict[str, Any] = {}
    if waits:
        fields["exchange_wait_seconds"] = sum(waits) / 1e9 / len(waits)
    if norms:
        batches = collections.Counter((small, big) for small, _, big, _ in norms)
        small_batch, big_batch = batches.most_common(1)[0][0]
        usual = [each for each in norms if each[0] == small_batch and each[2] == big_batch]
        fields.update(
            gns_steps=len(usual),
            gns_small_batch=small_batch,
            gns_small_square=sum(each[1] for each in usual) / len(usual),
            gns_big_batch=big_batch,
            gns_big_square=sum(each[3] for each in usual) / len(usual),
        )
    elif reason is not None:
        fields["gns_unavailable"] = reason[:200]
    return fields


def _summary(entries: list[Any]) -> dict[str, Any]:
    """Medians and means of steps (phase, duration, wait, micro-batches, examples, batch)."""
    steps = len(entries)
    seconds = sum(entry[1] for entry in entries) / 1e9
    examples = sum(entry[4] for entry in entries)
    few = entries[:WINDOW_STEPS]
    batches = collections.Counter(entry[5] for entry in few if entry[5] is not None)
    return {
        "steps": steps,
        "step_seconds": _median([entry[1] for entry in few]) / 1e9,
        "step_seconds_mean": seconds / steps,
        "data_wait_seconds": sum(entry[2] for entry in entries) / 1e9 / steps,
        "accumulation": max(1, int(_median([entry[3] for entry in few]))),
        "local_batch": batches.most_common(1)[0][0] if batches else None,
        "examples_per_second": examples / seconds if examples and seconds else None,
    }


def _median(values: list[int]) -> float:
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
