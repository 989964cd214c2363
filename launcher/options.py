"""Builds an agent's ``LaunchConfig`` from the flags of a command, by torchrun's rules."""

import math
import os
import re
import uuid
from collections.abc import Mapping
from typing import Any

from brain.errors import BadInput
from brain.types.accelerators import DEVICE_FILES
from brain.types.grace import GRACE_SECONDS
from brain.types.job import Checkpoint
from brain.types.places import probe_socket
from launcher.command.entrypoint import Entrypoint
from launcher.command.torchrun.devices import auto_config, gpu_addresses, processes_of
from launcher.coordinator.topology import asked
from launcher.values.config import LaunchConfig, LogConfig, Std
from launcher.workers import log_specs, numa
from launcher.workers.processes import output


def launch_config(
    entrypoint: Entrypoint, environment: Mapping[str, str], directory: str
) -> LaunchConfig:
    """Build the launch configuration from ``entrypoint.options``.

    Options that are not given have torchrun's defaults. The environment gives ``BRAIN_HOME``,
    ``BRAIN_PROBE`` and the variables that workers inherit. The directory of ``--log-dir`` is made
    here. Devices are counted if ``--nproc-per-node`` leaves their number open.

    Raises:
        BadInput: a value that cannot be used; the message names the flag and the remedy.
    """
    options = entrypoint.options
    if options.get("auto_config"):
        options = dict(options) | auto_config(options, entrypoint.interpreter, environment)
    least, most = nodes(options.get("nnodes", "1:1"))
    processes, accelerator = processes_of(
        options.get("nproc_per_node", "1"), entrypoint.interpreter, environment
    )
    shape = asked.shape_of(options.get("world") or "")
    parallel = asked.parallel_of(options.get("parallel") or "")
    unit = _at_least(options, "node_unit", 1, 1)
    if shape is not None:
        alone = not (options.get("rdzv_endpoint") or options.get("master_port"))
        nnodes = options.get("nnodes", "1:1")
        most = asked.nodes_asked(shape, nnodes, unit, processes, alone)
    else:
        unit = asked.unit_asked(unit, parallel, processes)
    backend, endpoint, run_id = _rendezvous(options, most)
    home = options.get("home") or environment.get("BRAIN_HOME") or "~/.brain"
    home = os.path.realpath(os.path.expanduser(home))
    config = LaunchConfig(
        entrypoint=entrypoint,
        processes=processes,
        nodes_min=least,
        nodes_max=most,
        unit=unit,
        shape=shape,
        parallel=parallel,
        topology=asked.path_of(options.get("topology") or environment.get("BRAIN_TOPOLOGY") or ""),
        node_rank=_at_least(options, "node_rank", 0, 0),
        run_id=run_id,
        job=options.get("job") or run_id,
        role=options.get("role", "default"),
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_conf=pairs(options.get("rdzv_conf", "")),
        master_addr=_master_addr(options, backend, most),
        master_port=options.get("master_port") if backend == "static" else None,
        local_addr=options.get("local_addr"),
        max_restarts=_at_least(options, "max_restarts", 0, 0),
        monitor_interval_seconds=options.get("monitor_interval", 0.1),
        signals=signals(options.get("signals_to_handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")),
        grace_seconds=_grace(options, environment),
        virtual_local_rank=bool(options.get("virtual_local_rank")),
        logs=_logs(options, environment, run_id),
        environment=dict(environment),
        directory=os.path.abspath(directory),
        checkpoint=Checkpoint(
            path=options.get("checkpoint") or None,
            every=options.get("checkpoint_every"),
            signal=_one_signal(options.get("checkpoint_signal"), "checkpoint-signal"),
        ),
        accelerator=options.get("accelerator") or accelerator,
        brain_url=options.get("brain"),
        token_file=options.get("brain_token_file") or None,
        home=home,
        # Without a Brain nobody would read what a collector keeps.
        collector_socket=probe_socket(home, os.getuid()) if options.get("brain") else None,
        probe=not options.get("no_probe") and environment.get("BRAIN_PROBE") != "0",
        preload=_preload(options, environment),
        park_cuda=bool(options.get("park_cuda")),
        memory_checkpoint=bool(
            options.get("memory_checkpoint") or environment.get("BRAIN_MEMORY_CHECKPOINT") == "1"
        ),
        save_at_breakpoint=bool(options.get("save_at_breakpoint")),
        bindings=_bindings(options, processes, entrypoint.interpreter, environment),
        network_check=_check(options),
        exclude_straggler=bool(options.get("exclude_straggler")),
        straggler_ratio=_ratio(options),
        hang_seconds=_hang_seconds(options, environment),
        on_hang=_on_hang(options, environment),
        events=_events(options),
    )
    if config.logs.specs is not None:
        log_specs.specs_of(config)  # what it refuses is told now, not by every worker
    return config


def nodes(said: str) -> tuple[int, int]:
    """Parse ``--nnodes``: ``4`` or ``1:4``.

    >>> nodes("4"), nodes("1:4")
    ((4, 4), (1, 4))

    Raises:
        BadInput: the value is not N or MIN:MAX with 1 <= MIN <= MAX.
    """
    found = re.fullmatch(r"(\d+)(?::(\d+))?", said)
    if not found:
        raise BadInput(
            f"--nnodes={said} is not N or MIN:MAX; give 2 or 1:4, for example", field="nnodes"
        )
    least = int(found[1])
    most = int(found[2] or least)
    if not 0 < least <= most:
        raise BadInput(f"--nnodes={said}: MIN must be at least 1 and at most MAX", field="nnodes")
    return least, most


def std(said: str, flag: str) -> dict[int | None, Std]:
    """Parse ``--redirects`` or ``--tee``: ``3`` for all ranks, or ``0:1,1:2``.

    >>> std("0:1,1:2", "--tee") == {0: Std.OUT, 1: Std.ERR}
    True

    Raises:
        BadInput: the value is neither 0 to 3 nor a list of RANK:VALUE pairs.
    """
    if re.fullmatch(r"[0-3]", said):
        return {None: Std(int(said))}
    if not re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", said):
        raise BadInput(
            f"{flag}={said} is not valid; give 0 to 3 for all ranks, or RANK:VALUE pairs such as "
            "0:1,1:3",
            field=flag.lstrip("-"),
        )
    return {int(rank): Std(int(value)) for rank, value in (p.split(":") for p in said.split(","))}


def pairs(said: str) -> dict[str, str]:
    """Parse ``--rdzv-conf``: ``a=1,b=2``.

    Raises:
        BadInput: an entry has no key or no value.
    """
    found = [entry.partition("=") for entry in said.split(",") if entry.strip()]
    if any(not key.strip() or not value.strip() for key, _, value in found):
        raise BadInput(f"--rdzv-conf={said} is not KEY=VALUE,…", field="rdzv_conf")
    return {key.strip(): value.strip() for key, _, value in found}


def signals(said: str, flag: str = "signals-to-handle") -> tuple[str, ...]:
    """Parse and check ``--signals-to-handle``, a list of names.

    Raises:
        BadInput: a name is not that of a signal which a process can handle.
    """
    import signal

    given = tuple(name.strip() for name in said.split(",") if name.strip())
    for name in given:
        if name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
            raise BadInput(
                f"--{flag}: a process cannot handle {name}; give names of signals such as SIGTERM",
                field=flag.replace("-", "_"),
            )
    return given


def _one_signal(said: str | None, flag: str) -> str | None:
    return next(iter(signals(said or "", flag)), None)


def _rendezvous(options: Mapping[str, Any], most: int) -> tuple[str, str, str]:
    """Return (backend, endpoint, run id); one machine needs no rendezvous, as with torchrun."""
    backend = options.get("rdzv_backend", "static")
    endpoint = options.get("rdzv_endpoint", "")
    run_id = options.get("rdzv_id", "none")
    bare = backend == "static" and not endpoint and options.get("master_port") is None
    if options.get("standalone") or (bare and most == 1):
        return "local", "", str(uuid.uuid4())
    if backend == "static" and not endpoint:
        port = options.get("master_port") or 29500
        endpoint = f"{options.get('master_addr', '127.0.0.1')}:{port}"
    return backend, endpoint, run_id or str(uuid.uuid4())


def _master_addr(options: Mapping[str, Any], backend: str, most: int) -> str | None:
    if backend == "static":
        return str(options.get("master_addr", "127.0.0.1"))
    # torchrun takes the machine's full name, which not every machine can resolve.
    return options.get("local_addr") or "localhost" if most == 1 else None


def _logs(options: Mapping[str, Any], environment: Mapping[str, str], run_id: str) -> LogConfig:
    ranks = options.get("local_ranks_filter", "")
    if ranks and not re.fullmatch(r"\d+(,\d+)*", ranks):
        raise BadInput(
            f"--local-ranks-filter={ranks} is not a list of numbers; give 0,1,2 for example",
            field="local_ranks_filter",
        )
    base = options.get("log_dir")
    if base and os.path.isfile(base):
        raise BadInput(f"--log-dir={base} is a file; give a directory", field="log_dir")
    # /dev/null is torchrun's way to say: keep nothing.
    keep = base and base != os.devnull
    plugged = options.get("logs_specs") is not None  # which makes directories of its own
    return LogConfig(
        run_directory=str(output.run_directory(base, run_id))
        if base and keep and not plugged
        else None,
        redirects=std(options.get("redirects", "0"), "--redirects"),
        tee=std(options.get("tee", "0"), "--tee"),
        local_ranks=frozenset(int(rank) for rank in ranks.split(",") if rank),
        prefix=environment.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE") or None,
        stdout_filters=tuple(options.get("duplicate_stdout_filters") or ()),
        stderr_filters=tuple(options.get("duplicate_stderr_filters") or ()),
        specs=options.get("logs_specs") or None,
        directory=base,
    )


def _preload(options: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    # A command that is no launcher has no flags; the variable counts there, too.
    said = options.get("preload") or environment.get("BRAIN_PRELOAD") or "learned"
    if said not in ("learned", "torch", "none", "parked"):
        raise BadInput(
            f"BRAIN_PRELOAD={said} is not valid; give learned, torch, none or parked",
            field="preload",
        )
    return str(said)


def _grace(options: Mapping[str, Any], environment: Mapping[str, str]) -> float:
    said = options.get("shutdown_timeout")
    if said is None:
        said = environment.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") or GRACE_SECONDS
    try:
        seconds = max(0.0, float(said))
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise BadInput(
            f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT={said} is not a number of seconds; give "
            f"{GRACE_SECONDS:.0f}, for example",
            field="shutdown_timeout",
        )
    return seconds


def _check(options: Mapping[str, Any]) -> int:
    """Return the level of checks before training: the highest level that any flag asks for."""
    said = str(options.get("precheck", "0"))
    if said not in ("0", "1", "2"):
        raise BadInput(f"--precheck={said} is not valid; give 0, 1 or 2", field="precheck")
    asked = 2 if options.get("comm_perf_test") else 1 if options.get("network_check") else 0
    # Who is slow is known only by checking.
    return max(int(said), asked, bool(options.get("exclude_straggler")))


def _hang_seconds(options: Mapping[str, Any], environment: Mapping[str, str]) -> float:
    said = options.get("hang_seconds", environment.get("BRAIN_HANG_SECONDS") or 300.0)
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise BadInput(
            f"--hang-seconds={said} is not a duration; give seconds, or 0 to turn the check for "
            "hangs off",
            field="hang_seconds",
        )
    return seconds


def _on_hang(options: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    said = options.get("on_hang") or environment.get("BRAIN_ON_HANG") or ""
    if said not in ("", "report", "restart"):
        raise BadInput(
            f"BRAIN_ON_HANG={said} is not valid; give report or restart", field="on_hang"
        )
    return said


def _ratio(options: Mapping[str, Any]) -> float:
    ratio = float(options.get("straggler_ratio", 1.15))
    if not ratio > 1:
        raise BadInput(
            f"--straggler-ratio={ratio:g} must be above 1; otherwise every node counts as slow",
            field="straggler_ratio",
        )
    return ratio


def _events(options: Mapping[str, Any]) -> bool:
    said = options.get("event_log_handler", "null")
    if said not in ("null", "console", "dynamic_rendezvous"):
        raise BadInput(
            f"--event-log-handler={said} is not valid; give null or console",
            field="event_log_handler",
        )
    return bool(said == "console")


def _bindings(
    options: Mapping[str, Any], count: int, interpreter: str, environment: Mapping[str, str]
) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each worker by ``--numa-binding``, near the GPU of its local rank."""
    mode = options.get("numa_binding") or ("node" if options.get("numa_affinity") else None)
    if mode is None:
        return ()
    places = []
    if any(map(os.path.exists, DEVICE_FILES)):
        places = gpu_addresses(f"--numa-binding={mode}", interpreter, environment)
    return tuple(numa.bindings(mode, count, places))


def _at_least(options: Mapping[str, Any], dest: str, default: int, least: int) -> int:
    value = int(options.get(dest, default))
    if value < least:
        flag = dest.replace("_", "-")
        raise BadInput(f"--{flag}={value} must be at least {least}", field=dest)
    return value
