"""What sees a worker's steps, data waits and saves, from inside the script's own process.

A guest: one self-contained file, standard library only, CPython 3.8 on, loaded by absolute path as
``_brain_probe``. It never imports torch; it waits until the script does and then hangs itself
into the global optimizer hooks, the DataLoader's iterator and the save and load functions. It
never raises into training and never blocks it, except to park a worker when the agent asks.
What it writes, and to whom, stands in docs/reference/protocols.md.

The hooks only count: they append one tuple per step, and a daemon thread makes samples of them.
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
    from typing import Any, Mapping

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
        if self.others:
            self.others = dict.fromkeys(self.others, 0)
        self.control[_STEPS] = steps
        self.control[_LAST] = now
        if steps <= WARMUP_STEPS:
            phase = _WARMUP
        elif self.saving:
            phase = _CHECKPOINT
        else:
            phase = _EVALUATION if self.evaluating else _TRAINING
        self.window.append((phase, now - self.since, wait, micro, examples, batch))
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
            self.sender.hand(("steps", now, self.steps, self.window))
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
            if not sys.modules["torch"].is_grad_enabled():
                self.evaluating = True
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
        try:
            result = original(*args, **kwargs)
        finally:
            probe.nested.saving = False
            probe.writing -= 1
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
        return [0] * 8
    with open(path, "r+b") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    return mapped if mapped[_VERSION] == LAYOUT else [0] * 8


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
    _, at_ns, step, window = measured
    phases: dict[int, list[Any]] = {}
    for entry in window:
        phases.setdefault(entry[0], []).append(entry)
    return [
        ("throughput", at_ns, dict(_summary(entries), phase=_PHASES[phase], step=step))
        for phase, entries in sorted(phases.items(), reverse=True)
    ]


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
