"""The state of one observed process, and the actions of the probe's hooks."""

from __future__ import annotations

import atexit
import collections
import os
import signal
import sys
import threading
import time
import weakref

from . import fields, files, measures, peers, sharding, tensorflow
from .batches import Batches
from .gradients import Gradients
from .hooks import Finder
from .sender import Sender
from .uploads import Uploads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

#: Least nanoseconds of a window of steps.
WINDOW_NS = 1_000_000_000
#: Number of the probe's own errors after which it switches itself off.
FAILURES = 10
#: An optimizer becomes the main one after this many steps during which the main one made none.
SWITCH_STEPS = 50
#: Exit code of a worker whose lease ran out; the launcher uses the same number.
LEASE_OVER = 83
#: Most distinct files whose loading is announced; data sets may be loaded file by file.
LOADS = 4096


class Probe:
    """The state of one observed process; hooks run on the script's threads."""

    def __init__(self, config: dict[str, Any], environ: Mapping[str, str]) -> None:
        self.armed = True
        self.config = config
        self.rank = int(environ.get("RANK", 0))
        self.local_rank = int(environ.get("LOCAL_RANK", 0))
        self.processes = int(environ.get("WORLD_SIZE", 1))
        self.control = fields.mapped(config.get("control"))
        self.sender = Sender(self)
        self.failures = 0
        self.steps = 0
        # No step was completed in the present world.
        self.fresh = True
        # Another worker was met; a group that was ended later was one all the same.
        self.met = False
        # The step: that of the optimizer with most parameters.
        self.main = 0
        self.main_size = -1
        self.main_alive: Any = None
        self.others: dict[int, int] = {}  # id -> steps since the main optimizer's last one
        # The interval since the last step.
        self.since = 0
        self.batches = Batches()
        self.evaluating = False
        self.saving = False
        self.phases = measures.Phases()
        self.thread = 0
        # The window of steps.
        self.window: list[tuple[Any, ...]] = []
        self.opened = 0
        # Saves that wait for their final name, and what was told already.
        self.saves: collections.deque[tuple[Any, ...]] = collections.deque()
        #: The newest failed save: the exception's ``id``, the path, and the free bytes there.
        self.failed_save: tuple[int, str, int] | None = None
        self.uploads = Uploads()
        self.loads: set[tuple[str, int]] = set()
        self.nested = threading.local()
        self.writing = 0
        self.gradients = Gradients(self)
        self.part = sharding.Part()

    def install(self) -> None:
        """Install hooks in observed modules when they are imported, but not in forked children."""
        finder = Finder(self)
        finder.actions.update(tensorflow.ACTIONS)
        sys.meta_path.insert(0, finder)
        for name in list(finder.actions):
            if name in sys.modules:
                finder.act(name, sys.modules[name])
        os.register_at_fork(after_in_child=self.disarm)
        atexit.register(self.finish)
        self.sender.tell("started", pid=os.getpid())

    def moved(self, rank: int, processes: int, place: dict[str, Any]) -> None:
        """Record that this process continues in another world, to which later samples belong."""
        try:
            self._close_window(time.monotonic_ns())
            # The thread that sends makes samples of a window by what is known here.
            self.sender.flush_window()
            self.config = dict(self.config, **place)
            self.rank, self.processes = rank, processes
            self.part.due = self.steps + 1
            self.met = self.met or processes > 1
            self.control[fields.FIRST] = 0
            self.fresh = True
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("moved", error)

    def disarm(self) -> None:
        """Stop observing: every hook then returns immediately."""
        self.armed = False

    def finish(self) -> None:
        """Announce the last save and send the last window; called at the end of the process."""
        if not self.armed:
            return
        try:
            self._collect_uploads()
            self._announce_saves(last=True)
            self._close_window(time.monotonic_ns())
            self.armed = False
            self.sender.flush()
        except Exception:  # noqa: BLE001 - an exit code is worth more than the last sample
            self.armed = False

    def failed(self, where: str, error: Exception) -> None:
        """Count an error of the probe, report the first, and stop observing after too many."""
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
        """End or pause this process if its lease has expired. A process that was stopped and
        resumes must not step or save while its successors run, even before the thread that checks
        the lease runs.
        """
        while 0 < self.control[fields.LEASE] < time.monotonic_ns():
            if not self.config.get("hold"):
                os._exit(LEASE_OVER)
            self.control[fields.HELD] = 1
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            self.control[fields.HELD] = 0

    # -- optimizer steps ----------------------------------------------------------------------

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Handle a step boundary: announce saves, which now have their final names, and hold the
        worker here (*park* it) while the agent requests it.
        """
        if not self.armed or getattr(self.nested, "initialising", False):
            return
        path, park = None, False
        try:
            self.check_lease()
            if self.uploads:
                if self.control[fields.PARK]:
                    self._await_upload()
                self._collect_uploads()
            if not self.since:
                self.since = time.monotonic_ns()
            if self.gradients.handles and id(optimizer) == self.main:
                self.gradients.close()
            if self.saves:
                path = self._announce_saves()
            if self.control[fields.PARK]:
                park = path is not None or self.control[fields.PARK] == 2
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("before_step", error)
        if park:
            # Not guarded: what a signal handler raises while we wait belongs to the script.
            self._park(path)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Count a completed step of the main optimizer."""
        if not self.armed or getattr(self.nested, "initialising", False):
            return
        try:
            if id(optimizer) == self.main or self._takes_over(optimizer):
                self._count(time.monotonic_ns())
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("after_step", error)

    def _takes_over(self, optimizer: Any) -> bool:
        """True if this optimizer becomes the main one, so that its step counts."""
        key = id(optimizer)
        stepped = self.others.get(key)
        gone = self.main_alive is not None and self.main_alive() is None
        counts = stepped is None or stepped >= SWITCH_STEPS or gone
        size = parameters(optimizer) if counts else 0
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
        if self.batches.loaders:
            (micro, wait, examples, batch), others = self.batches.take(self.steps)
            self.evaluating = self.evaluating or others
        self.steps = steps = self.steps + 1
        if self.gradients.closed:
            self.gradients.conclude(micro, examples, batch)
        if self.others:
            self.others = dict.fromkeys(self.others, 0)
        self.control[fields.STEPS] = steps
        self.control[fields.LAST] = now
        self.control[fields.DOING] = 0
        phase = self.phases.next(steps, self.saving, self.evaluating)
        self.window.append((phase, now - self.since, wait, micro, examples, batch))
        if steps >= self.gradients.due:
            self.gradients.open(steps, now)
        self.since = now
        self.saving = self.evaluating = False
        if now - self.opened >= WINDOW_NS:
            self._close_window(now)
        if self.fresh:
            self._first(now)

    def _first(self, now: int) -> None:
        self.fresh = False
        self.met = self.met or peers.met()
        self.control[fields.FIRST] = now
        self.sender.tell("stepping")
        if not self.thread:
            self.thread = threading.get_ident()
            self.sender.start()

    def _close_window(self, now: int) -> None:
        if self.window:
            told = self.gradients.told()
            self.met = self.met or peers.met()
            optimizer = self.main_alive and self.main_alive()
            held = self.part.read(self.steps, optimizer, self.gradients.zeros)
            self.sender.hand(("steps", now, self.steps, self.window, told, self.met, held))
            self.window = []
        self.opened = now

    def _park(self, path: str | None) -> None:
        control = self.control
        began = time.monotonic_ns()
        control[fields.PARKED] = 1
        try:
            self.sender.tell("parked", step=self.steps, path=path)
            while control[fields.PARK]:
                time.sleep(0.002)
        finally:
            control[fields.PARKED] = 0
            self.since += time.monotonic_ns() - began

    # -- data ---------------------------------------------------------------------------------

    def after_next(self, iterator: Any, data: Any, began: int) -> None:
        """Count a batch from a loader; a batch that is read while gradients are disabled belongs to
        an evaluation and is not counted.
        """
        try:
            self.control[fields.LIFE] = now = time.monotonic_ns()
            if not sys.modules["torch"].is_grad_enabled():
                self.evaluating = True
                self.control[fields.DOING] = 2
                return
            if not self.since:
                self.since = began
            # A thread that reads ahead waits for data, training does not.
            here = not self.thread or threading.get_ident() == self.thread
            self.batches.add(iterator._index_sampler, data, now - began if here else 0)
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("after_next", error)

    # -- saves and loads ----------------------------------------------------------------------

    def wrote(
        self, file: Any, seconds_ns: int, step: int | None = None, upload: bool = False
    ) -> None:
        """Remember a written file or directory until the next step boundary.

        ``step`` is the step after which the file was complete. For an ``upload``, it is the step
        whose state the file contains.
        """
        try:
            path = files.path_of(file)
            if not self.armed or path is None:
                return
            here = not self.thread or threading.get_ident() == self.thread
            self.saving = self.saving or here
            # Another thread may rename it only after the step that is under way.
            due = self.steps + (0 if here or step is not None else 1)
            seconds = seconds_ns / 1e9 if here else 0.0
            at = self.steps if step is None else step
            self.saves.append((path, files.identity(path), at, seconds, due, upload))
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("wrote", error)

    def _collect_uploads(self) -> None:
        for upload in self.uploads.take_complete():
            self.wrote(upload.place, 0, step=upload.step, upload=True)

    def _await_upload(self) -> None:
        """Block training while the checkpoint of this step is written, so that a world change that
        waits for this checkpoint loses no step.
        """
        began, control = time.monotonic_ns(), self.control
        control[fields.DOING] = 1
        while control[fields.PARK] and self.uploads.writes_state_of(self.steps):
            control[fields.LIFE] = time.monotonic_ns()
            self.check_lease()
            time.sleep(0.002)
        control[fields.DOING] = 0
        self.since += time.monotonic_ns() - began if self.since else 0

    def failed_to_save(self, file: Any, error: BaseException) -> None:
        """Store the path of a failed save, and the number of free bytes on its file system. The
        script has not yet removed the incomplete file.
        """
        try:
            path = files.path_of(file)
            if path is not None:
                self.failed_save = (id(error), path, files.free_bytes(path))
        except Exception as unknown:  # noqa: BLE001 - never into training
            self.failed("failed_to_save", unknown)

    def read(self, file: Any) -> None:
        """Announce a loaded file or directory, each only once."""
        try:
            path = files.path_of(file)
            if not self.armed or path is None or len(self.loads) >= LOADS:
                return
            inode = files.inode_of(path)
            self.control[fields.LIFE] = time.monotonic_ns()
            if (path, inode) not in self.loads:
                self.loads.add((path, inode))
                self.sender.tell("loaded", path=path, inode=inode)
        except Exception as error:  # noqa: BLE001 - never into training
            self.failed("read", error)

    def _announce_saves(self, last: bool = False) -> str | None:
        """Announce the due saves under their final names; return the last name at a safe point.

        An upload of an earlier step is no safe point, because the steps since then would be lost.
        """
        told, waiting = None, []
        while self.saves:
            save = self.saves.popleft()
            path, identity, step, seconds, due, upload = save
            if due > self.steps and not last:
                waiting.append(save)
                continue
            final = files.final_name(path, identity)
            if final is None:
                continue
            told = told if upload and step < self.steps else final
            size = files.size(final)
            self.control[fields.SAVED] = step
            self.sender.told_save(final)
            said = {"path": final, "step": step}
            self.sender.tell("saved", seconds=seconds, bytes=size, replaced=final != path, **said)
            self.sender.hand(
                ("save", time.monotonic_ns(), dict(said, save_seconds=seconds, size_bytes=size))
            )
        self.saves.extend(waiting)
        return told


def parameters(optimizer: Any) -> int:
    """Return the number of scalar parameters that an optimizer trains."""
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
