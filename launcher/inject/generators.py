"""Random numbers of a forked worker, none of which continue the fork server's sequences.

A fresh interpreter draws the seeds of its generators from the system. A fork has the seeds of the
fork server, so ``renew`` draws new seeds before the script's first line. A script that sets seeds
does so later, and gets the usual numbers. A generator that a library seeded with a fixed value is
the same in every process, and is kept. ``trace`` reports all other generators.

This module runs inside workers, uses only the standard library and supports CPython 3.8 and later.
"""

import functools
import gc
import os
import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

#: ``initial_seed()`` of a torch.Generator that nobody has seeded: the same in every process.
_TORCH_DEFAULT_SEED = 67280421310721
#: A seed that was drawn from the system is larger; one that somebody wrote down hardly ever is.
_WRITTEN_BELOW = 1 << 32
#: Where numpy's own generator stands as long as nobody has drawn from it.
_NUMPY_UNDRAWN = 623
#: ``rich.style`` draws so many bits from ``random`` when it is imported.
_RICH_BITS = 24
#: What ``uuid`` remembers of what it made in this process, as a fresh process has it.
_UUID_STATE = {
    "_node": None,
    "_last_timestamp": None,
    "_last_timestamp_v6": None,
    "_last_timestamp_v7": None,
    "_last_counter_v7": 0,
}


class Generators:
    """The random generators that were made before the fork; create this object before any library
    is imported.
    """

    def __init__(self) -> None:
        #: Those that drew their seed from the system, with their state right after it.
        self._drawn: "dict[int, tuple[random.Random, Any]]" = {}
        #: Those of numpy that did, and from which nobody has drawn.
        self._bits: "dict[int, Any]" = {}
        self._seed = random.Random.seed
        self._standard = random.getstate()
        self._modules = set(sys.modules)
        self._used: "set[str]" = set()
        self._rich = False
        self._watch()

    def accept(self) -> None:
        """Accept the modules imported so far: ``renew`` can renew all their generators."""
        self._look()
        gc.freeze()

    def trace(self, seeds: "set[int]") -> "str | None":
        """Search newly imported modules for a generator that no worker can renew; return a sentence
        about it.

        None if there is no such generator. ``seeds`` are numbers that may have become seeds of
        numpy's generators.
        """
        used = self._look()
        objects = gc.get_objects()
        gc.freeze()  # so that the next look is at what is new; a fork freezes it anyway
        if used:
            return "it seeds %s or draws numbers from that generator when it is imported" % used
        unseeded = [each for each in self._others(objects) if _unseeded(each)]
        if not all([self._renewable(each, seeds) for each in unseeded]) or self._numbers_drawn():
            return "it generates random numbers when it is imported"
        return None

    def renew(self) -> None:
        """Draw, in a worker, the numbers that a fresh interpreter would have drawn."""
        random.Random.seed = self._seed  # type: ignore[method-assign]
        random.seed()
        for generator, _ in self._drawn.values():
            generator.seed()
        for bits in self._bits.values():
            bits.__init__()  # in place: it draws another seed
        _renew_sympy()
        _renew_rich()
        _renew_numpy_and_torch()
        _renew_names()

    def _watch(self) -> None:
        """Note which generators draw their seed: their state does not tell."""
        seed, drawn = self._seed, self._drawn

        @functools.wraps(seed)
        def noting(generator: random.Random, a: "Any" = None, *args: "Any", **more: "Any") -> None:
            seed(generator, a, *args, **more)
            drawn.pop(id(generator), None)
            if a is None and not isinstance(generator, random.SystemRandom) and not _names():
                drawn[id(generator)] = (generator, generator.getstate())

        random.Random.seed = noting  # type: ignore[method-assign,assignment]

    def _look(self) -> "str | None":
        """Return the library whose global generator was used for the first time; None if there is
        none.
        """
        self._look_at_rich()
        users = {
            "random": lambda: random.getstate() != self._standard,
            "numpy.random": _numpy_used,
            "torch": _torch_used,
        }
        new = [name for name, used in users.items() if name not in self._used and used()]
        self._used.update(new)
        return new[0] if new else None

    def _numbers_drawn(self) -> bool:
        """True if numbers of a generator that cannot be renewed may be kept somewhere."""
        known = {id(each) for each in _of_sympy()}
        drawn = (pair for at, pair in self._drawn.items() if at not in known)
        if any(generator.getstate() != state for generator, state in drawn):
            return True
        return any(_drawn_from(bits) for bits in self._bits.values())

    def _renewable(self, generator: "Any", seeds: "set[int]") -> bool:
        """True for a generator of numpy with a seed from the system that no other object keeps."""
        bits = getattr(generator, "_bit_generator", generator)
        if _entropy(bits) not in seeds or _owners(bits) > _owners(type(bits)()):
            return False
        self._bits[id(bits)] = bits
        return True

    def _look_at_rich(self) -> None:
        """Accept the one draw from ``random`` that ``rich.style`` makes when it is imported."""
        if self._rich or "rich.style" not in sys.modules:
            return
        self._rich = True
        like = random.Random(0)
        like.setstate(self._standard)
        like.getrandbits(_RICH_BITS)
        if random.getstate() == like.getstate():
            self._standard = like.getstate()

    def _others(self, objects: "list[Any]") -> "Iterable[Any]":
        """Return the generators of numpy and torch among ``objects``, and in new modules."""
        kinds = {kind for kind in set(map(type, objects)) if _of_numpy(kind)}
        if kinds:
            yield from (each for each in objects if type(each) in kinds)
        new = sys.modules.keys() - self._modules
        self._modules |= new
        torch = sys.modules.get("torch")
        for name in list(new) if hasattr(torch, "default_generator") else ():
            # The collector does not know torch's.
            for each in list(getattr(sys.modules.get(name), "__dict__", {}).values()):
                if type(each) is torch.Generator:  # type: ignore[union-attr]
                    yield each


def _names() -> bool:
    """True if the generator makes temporary names: every process makes such a generator anew."""
    frame: "Any" = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "tempfile"


def _renew_numpy_and_torch() -> None:
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch = sys.modules.get("torch")
    if hasattr(torch, "default_generator"):
        # Not torch.seed(), which would seed CUDA's as well: they draw theirs when CUDA starts.
        torch.default_generator.seed()  # type: ignore[union-attr]


def _renew_names() -> None:
    """Renew the names and keys that no other process may share."""
    uuid = sys.modules.get("uuid")
    for name, fresh in _UUID_STATE.items():
        if hasattr(uuid, name):
            setattr(uuid, name, fresh)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def _numpy_used() -> bool:
    numpy = sys.modules.get("numpy.random.mtrand")
    if numpy is None:
        return False
    generator = numpy._rand._bit_generator
    position: int = generator.state["state"]["pos"]
    return _seed_of_numpy(generator) is None or position != _NUMPY_UNDRAWN


def _torch_used() -> bool:
    torch = sys.modules.get("torch")
    if not hasattr(torch, "default_generator"):
        return False
    generator = torch.default_generator  # type: ignore[union-attr]
    seed = generator.initial_seed()
    like: "Any" = torch.Generator().manual_seed(seed)  # type: ignore[union-attr]
    return seed < _WRITTEN_BELOW or not torch.equal(  # type: ignore[union-attr]
        like.get_state(), generator.get_state()
    )


def _unseeded(generator: "Any") -> bool:
    """True if a generator of numpy or torch may have drawn its seed."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random.mtrand")
    if hasattr(generator, "initial_seed"):
        seed = generator.initial_seed()
        own = generator is torch.default_generator  # type: ignore[union-attr]
        return not own and seed != _TORCH_DEFAULT_SEED and seed >= _WRITTEN_BELOW
    standard = numpy._rand  # type: ignore[union-attr]
    if generator in (standard, standard._bit_generator):
        return False
    entropy = _entropy(getattr(generator, "_bit_generator", generator))
    return not isinstance(entropy, int) or entropy >= _WRITTEN_BELOW


def _seed_of_numpy(generator: "Any") -> "Any":
    return getattr(generator, "seed_seq", None) or getattr(generator, "_seed_seq", None)


def _entropy(bits: "Any") -> "Any":
    return getattr(_seed_of_numpy(bits), "entropy", None)


def _owners(bits: "Any") -> int:
    """References to the seed of a generator of numpy."""
    return sys.getrefcount(_entropy(bits))


def _drawn_from(bits: "Any") -> bool:
    """True if a generator of numpy has drawn numbers since it was seeded."""
    like = type(bits)(_seed_of_numpy(bits))
    return repr(like.state) != repr(bits.state)


def _of_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy.random.mtrand")
    if numpy is None:
        return False
    generators = sys.modules["numpy.random"]
    kinds = (generators.Generator, generators.RandomState, generators.BitGenerator)
    return issubclass(kind, kinds)


def _of_sympy() -> "list[random.Random]":
    """Generators of sympy, which torch._dynamo imports."""
    own = sys.modules.get("sympy.core.random")
    dummy = getattr(sys.modules.get("sympy.core.symbol"), "Dummy", None)
    found = [getattr(own, name, None) for name in ("rng", "_assumptions_rng")]
    return [each for each in [*found, getattr(dummy, "_prng", None)] if each is not None]


def _renew_sympy() -> None:
    dummy = getattr(sys.modules.get("sympy.core.symbol"), "Dummy", None)
    if hasattr(dummy, "_base_dummy_index"):
        dummy._base_dummy_index = dummy._prng.randint(10**6, 9 * 10**6)  # type: ignore[union-attr]


def _renew_rich() -> None:
    style = sys.modules.get("rich.style")
    if hasattr(style, "_id_generator"):
        begin = random.getrandbits(_RICH_BITS)
        style._id_generator = type(style._id_generator)(begin)  # type: ignore[union-attr]
