"""Measures gradient noise on sampled steps, while gradients arrive."""

from __future__ import annotations

import collections
import functools
import sys
import time
import weakref

from . import fields
from .comparable import NotComparable, Odd, network_of, trained_by
from .measures import WARMUP_STEPS
from .norms import norm_of, norms_of, squares_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .observing import Probe

#: Least number of steps from one sampled step to the next. Only powers of two are used, so that all
#: ranks sample the same steps: in a synchronous job all ranks wait for a rank that samples alone.
GRADIENT_STEPS = 16
#: Most nanoseconds per step, on average, for reading gradients; sampling is rare enough for this.
GRADIENT_NS = 12_000
#: Least nanoseconds between two sampled steps.
GRADIENT_PAUSE_NS = 100_000_000
#: Nanoseconds that autograd needs to call a hook, without the hook's own time.
HOOK_NS = 1_500
#: Steps after which the probe tries again if gradients could not be compared.
RETRY_STEPS = 1024
#: Failed attempts in a row after which the reason is reported.
ATTEMPTS = 4


class Gradients:
    """Compares gradients of one micro-batch with those of a whole step, on sampled steps.

    Under DistributedDataParallel, a hook reads the worker's own gradient when it arrives at a
    parameter, and the mean over all workers when the backward pass ends. With accumulation, the
    hook reads the gradient of each micro-batch and their mean. The difference of the squared norms
    is gradient noise (McCandlish et al., 2018, appendix A.1; ``brain.models.efficiency``). The
    measurement exchanges nothing. Both norms are read in the same backward passes, so later changes
    of gradients (clip, unscale, zero) do not matter, and a constant loss scale cancels.

    Parameters have hooks only during a sampled step. If the gradients of a step cannot be compared,
    the step is dropped. If the gradients of no step can be compared, the reason is reported instead
    of an estimate.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.networks: Any = weakref.WeakSet()
        self.scalers: Any = weakref.WeakSet()
        self.zeros: Any = weakref.WeakSet()
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
        """Install hooks if the next step must be sampled; called after each step."""
        half = GRADIENT_STEPS // 2
        self.due = steps - steps % half + half
        if self.off or steps < self.resume:
            return
        full = steps % self.every == 0
        if full or (self.last >= 0 and steps % (2 * GRADIENT_STEPS) == half):
            self._guarded(self._open, steps, now, not full)

    def close(self) -> None:
        """Remove the hooks; called before the optimizer step."""
        self._guarded(self._close)

    def conclude(self, micro: int, examples: int, batch: int | None) -> None:
        """Compute a result from the norms and from the loaders' batches; called after the step."""
        self._guarded(self._conclude, micro, examples, batch)
        if not self.timing:
            hooks = sum(len(norms) + 1 for norms in self.norms)
            self.costs.append(self.spent + HOOK_NS * hooks)
            self._pace()
        self.norms, self.big, self.before, self.ends = [], [], [], []
        self.spent = 0

    def told(self) -> tuple[Any, ...]:
        """Return and clear the results of a window of steps: the norms, the waits for exchanges in
        nanoseconds, and the reason if gradients cannot be compared.
        """
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
        except NotComparable as why:
            self._give_up(str(why), isinstance(why, Odd))
        except Exception as error:  # noqa: BLE001 - never into training, least of all into autograd
            self.off = True
            self._give_up("the probe failed while it measured gradients: %s" % type(error).__name__)
            self.probe.failed("gradients", error)
        self.spent += time.perf_counter_ns() - began

    def _give_up(self, why: str, odd: bool = False) -> None:
        """Drop the sampled step. Unless only this step was ``odd``, sample again much later."""
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
        """Choose the number of steps from one sampled step to the next, by cost and by time."""
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
        """Find the parameters, and the module that averages their gradients over all workers."""
        probe = self.probe
        optimizer = probe.main_alive() if probe.main_alive is not None else None
        if optimizer is None:
            raise NotComparable("the optimizer is gone")
        own = trained_by(optimizer)
        network = network_of(own, self.networks, probe.processes)
        self.network = None if network is None else weakref.ref(network)
        if network is not None:
            own = [each for each in network.parameters() if each.requires_grad]
        if len(own) != len(self.parameters) or any(
            known() is not each
            for known, each in zip(self.parameters, own)  # noqa: B905
        ):
            self.parameters, self.last = [weakref.ref(each) for each in own], -1
        wide = [index for index, each in enumerate(own) if each.dim() > 1]
        self.watched = wide[0] if wide else 0

    def _arrived(self, index: int, gradient: Any) -> None:
        """Take a gradient that arrives at a parameter, in a backward pass."""
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
            self.before.append(norm_of(torch, earlier))
        norms.append(norm_of(torch, gradient))

    def _follow(self) -> None:
        """Make autograd call ``_over`` after other callbacks, such as DistributedDataParallel's."""
        if not self.queued:
            self.queued = True
            engine = sys.modules["torch"].autograd.Variable._execution_engine
            engine.queue_callback(functools.partial(self._over, 2))

    def _over(self, more: int) -> None:
        """Record that a backward pass ends; callbacks that run before may queue further ones."""
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
                self.big = norms_of(torch, [each.grad for each in read])

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
        """Add up the norms of a step whose gradients can be compared."""
        fired = [norms for norms in self.norms if norms]
        if not fired:
            raise NotComparable("backward() gave the optimizer's parameters no gradient")
        passes = max(map(len, fired))
        usual, self.passes = self.passes <= passes, passes
        if passes == 1 and self.probe.processes == 1:
            raise NotComparable("one worker without accumulation")
        if not batch:
            raise NotComparable("no batch size was seen")
        self._check(fired, passes, micro)
        if not usual or passes * batch != examples:
            return  # the last batches of an epoch, which are fewer or smaller
        torch = sys.modules["torch"]
        scalers = [each for each in list(self.scalers) if getattr(each, "_scale", None) is not None]
        if len(scalers) > 1:
            raise NotComparable("several gradient scalers")
        sums = [squares_of(torch, [norm for norms in fired for norm in norms])]
        sums += [squares_of(torch, self.big)]
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
        """Raise ``Odd`` for a step without exactly one gradient per parameter and micro-batch."""
        if min(map(len, fired)) != passes:
            raise Odd("some parameters take part in only some backward passes of a step")
        if passes != micro:
            raise Odd("%d backward passes for %d batches of a step" % (passes, micro))
        if len(self.big) != len(fired):
            raise Odd("the step does not follow a backward pass that averages gradients")
        if self.kept not in (0, len(fired)) or (self.kept and len(self.before) != passes):
            raise Odd("some parameters keep gradients from step to step")
        if self.network is None and any(self.probe.others.values()):
            raise Odd("several optimizers share the network's parameters")

    def _poll(self) -> None:
        """Take the results that a device has computed, without waiting for others."""
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
                self.probe.control[fields.WAITED] += max(0, took)
                self.probe.control[fields.WAITS] += 1
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
            raise Odd("gradients are zeroed between the backward passes of a step")
        factor = 1.0 if scale == 2 else values[2] ** 2
        small, big = small / factor, big / factor
        # Infinite where the scale was too large; that step is skipped by the script, too.
        if 0 < small < float("inf") and 0 < big < float("inf"):
            workers = self.probe.processes if self.network is not None else 1
            self.found.append((batch, small, workers * passes * batch, big))
            self.reason, self.misses = None, 0
