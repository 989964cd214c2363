"""The names in torch on which the launcher and the probe rely, and what fails without each name.

Few of them are part of torch's public interface. They are looked up once torch is imported, in the
fork server or in a parked process, before any worker is made. This module runs inside workers, uses
only the standard library and supports CPython 3.8 and later.

Optional names are not listed: attributes of instances, which are looked up when they are read
(``GradScaler._scale``, ``DistributedDataParallel._comm_hooks``), and names that some builds do not
have (``_dump_fr_trace_json``, ``async_save``, ``get_default_mmap_options``).
"""

import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, NamedTuple

    class Name(NamedTuple):
        module: str
        name: str
        #: What we do with it.
        part: str
        #: What happens without it.
        without: str
        #: Workers start plain without it, since a fork would not be what a fresh worker is.
        plain: bool

else:
    import collections

    Name = collections.namedtuple("Name", "module name part without plain")

_C10D, _OPTIMIZER = "torch.distributed.distributed_c10d", "torch.optim.optimizer"
_DATA, _STATE_DICT = "torch.utils.data.dataloader", "torch.distributed.checkpoint.state_dict"
_EARLY = "a worker that is started ahead waits while it imports torch"
_RANDOM = "forked workers would draw the same random numbers"
_HANG = "a process group that is destroyed right after its last use may hang"
_BLIND = "the probe sees no steps"
_COPIES = "each save waits for storage"

NAMES = (
    Name("torch", "default_generator.seed", "random numbers", _RANDOM, True),
    Name("torch", "Generator.initial_seed", "random numbers", _RANDOM, True),
    Name(_C10D, "rendezvous", "gate, meeting of ranks", _EARLY, True),
    Name(_C10D, "_new_process_group_helper", "gate", _EARLY, True),
    Name("torch.cuda", "_lazy_init", "gate", _EARLY, True),
    Name(_C10D, "_update_default_pg", "parting of ranks", _HANG, True),
    Name(_C10D, "_unregister_process_group", "parting of ranks", _HANG, True),
    Name(_C10D, "_world.pg_map", "parting of ranks", _HANG, True),
    Name(_C10D, "_world.pg_backend_config", "parting of ranks", _HANG, True),
    Name(_OPTIMIZER, "register_optimizer_step_pre_hook", "gate, probe", _EARLY, True),
    Name(_OPTIMIZER, "register_optimizer_step_post_hook", "probe", _BLIND, True),
    Name("torch.serialization", "save", "probe, memory checkpoint", _COPIES, True),
    Name("torch.serialization", "load", "probe, memory checkpoint", _COPIES, True),
    Name(_DATA, "_BaseDataLoaderIter.__next__", "probe", "waits for data are not seen", False),
    Name(
        "torch.nn.parallel.distributed",
        "DistributedDataParallel.__init__",
        *("probe", "gradient noise is not measured", False),
    ),
    Name(
        "torch.amp.grad_scaler",
        "GradScaler.__init__",
        *("probe", "a loss scale stays in gradient norms", False),
    ),
    Name(
        "torch.autograd",
        "Variable._execution_engine.queue_callback",
        *("probe", "gradient noise is not measured", False),
    ),
    Name(
        "torch.distributed.rpc.api",
        "_is_current_rpc_agent_set",
        *("probe", "workers that communicate only by RPC look like independent copies", False),
    ),
    Name(
        _STATE_DICT,
        "_init_optim_state",
        *("probe", "the optimizer step inside get_state_dict counts as a training step", False),
    ),
)


def lacking() -> "list[Name]":
    """Return the names that torch lacks in this process.

    Names in modules that torch imports late are checked only after these modules are imported.
    """
    return [each for each in NAMES if not _has(each)]


def said(names: "list[Name]") -> str:
    """Return a line that gives the missing names and the consequences."""
    torch = sys.modules.get("torch")
    texts = ("%s.%s (%s: %s)" % each[:4] for each in names)
    return "torch %s has no %s" % (getattr(torch, "__version__", "?"), ", no ".join(texts))


def lacks() -> "Mapping[str, object] | None":
    """Return a message to the agent about the missing names; None if none is missing."""
    names = lacking()
    if not names:
        return None
    return {"why": said(names), "plain": any(each.plain for each in names)}


def _has(wanted: "Name") -> bool:
    found = sys.modules.get(wanted.module)  # type: object
    if found is None:
        return _comes_late(wanted.module)
    for name in wanted.name.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def _comes_late(module: str) -> bool:
    """True if a module that is not imported yet exists, or its parent is not imported either."""
    if module.rpartition(".")[0] not in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
