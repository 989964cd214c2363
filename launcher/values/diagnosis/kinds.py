"""The kind of one worker's failure, and the text that shows it. Pure.

Evidence from hardware and kernel takes precedence over evidence from the script. The exception that
ended the script takes precedence over other output.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from brain.types.diagnosis import FailureKind
from brain.types.explanation import Evidence
from launcher.values.diagnosis.signs import Signs

#: Xid errors that only a broken card, link or driver makes; others (13, 31, 43, 45, 68 …) may be
#: the script's (NVIDIA, "XID errors", table of causes).
SICK_XIDS = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143})

_DEVICE = (
    r"fallen off the bus",
    r"uncorrectable (NVLink|ECC)",
    r"CUDA error: (uncorrectable|hardware|the launch timed out|unknown error)",
    r"cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE|CUDA_ERROR_SYSTEM_NOT_READY",
    r"No CUDA GPUs are available|no CUDA-capable device is detected",
    r"Unable to determine the device handle for GPU",
    rf"\bXid\b.*: (?:{'|'.join(map(str, sorted(SICK_XIDS)))})\b",
    r"NVML: (GPU is lost|Driver/library version mismatch)|GPU is lost",
)
_DEVICE_MEMORY = (
    r"CUDA out of memory|HIP out of memory|NPU out of memory",
    r"OutOfMemoryError: (?!Java)",
    r"CU(BLAS|DNN|SOLVER|FFT)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY",
)
_MEMORY = (
    r"^MemoryError\b",
    r"std::bad_alloc",
    r"DefaultCPUAllocator: (can't|not enough memory)",
    r"\[Errno 12\]|Cannot allocate memory",
    r"(Unable to allocate .* for an array)",
    r"DataLoader worker \(pid.*\) is killed by signal: Killed",
)
_SHARED_MEMORY = (
    r"DataLoader worker \(pid.*\) is killed by signal: Bus error",
    r"insufficient shared memory \(shm\)|out of shared memory",
    r"unable to (allocate|write to|resize|mmap) .*(shared memory|</torch_)",
    r"\[Errno 28\].*/dev/shm/|^Bus error\b",
)
_STORAGE = (
    r"\[Errno (5|27|28|30|116|121|122)\]",
    r"File too large|\d+ requested and \d+ written",
    r"No space left on device|Input/output error|Stale file handle|Read-only file system",
    r"Disk quota exceeded|Remote I/O error|Structure needs cleaning",
    # What stores of objects say while they are overloaded or restarted.
    r"\bHTTP(?: ?Error)?:? (?:429|50[0234])\b|\b[Ss]tatus(?:[ _]code)?[:= ]+(?:429|50[0234])\b",
    r"\b50[0234] Server Error",
    r"\b429 Client Error|ServiceUnavailable\b|Service Unavailable|SlowDown\b|TooManyRequests\b",
    r"Too Many Requests|InternalError\) when calling|RequestTimeout\b",
    r"PytorchStreamWriter failed|basic_ios::clear|unexpected pos \d+ vs",
)
#: Errors of a rank whose peer or connection is gone.
_NETWORK = (
    r"Connection (reset|closed|refused|aborted)( by peer)?|connection closed by remote",
    r"ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError",
    r"\[Errno (32|101|103|104|110|111|113)\]",
    r"Broken pipe|Socket closed|Network is unreachable|No route to host|Name or service not known",
    r"gaierror|Temporary failure in name resolution",
    r"nccl(Remote|System|Internal)Error|NCCL communicator was aborted|NCCL WARN .*(Net|socket)",
    r"Watchdog caught collective operation timeout|collective operation timeout",
    r"gloo[/\\].*(timeout|Timed out|Connect|Read error|Write error)|Gloo connectFullMesh failed",
    r"(Timed out|[Ww]ait timeout|timed out) .*(waiting|after|connect)|Socket Timeout",
    r"Dist(Network|Store|Backend)Error|recvValue failed|sendBytes failed|recvBytes failed",
    r"(requests|urllib3|httpx|botocore)\.\S*(Connect|Timeout|EndpointConnection)\S*",
    r"^[\w.]*(TimeoutError|socket\.timeout|RemoteDisconnected|IncompleteRead|IncompleteReadError)\b",
    r"^[\w.]*(ServerDisconnectedError|ProtocolError|ChunkedEncodingError|SSLError|SSLEOFError)\b",
    r"^[\w.]*(Connect|Read|Write|Pool)Timeout\b|^timeout: timed out",
    r"CUDA error: .*(NVLink|remote)|ibv_\w+ failed|IBV_WC_\w+",
)

#: In this order: a full disk may be reported over a connection, never the other way round.
_TABLE: Sequence[tuple[FailureKind, "re.Pattern[str]"]] = tuple(
    (kind, re.compile("|".join(f"(?:{each})" for each in patterns), re.MULTILINE))
    for kind, patterns in (
        (FailureKind.DEVICE, _DEVICE),
        (FailureKind.DEVICE_MEMORY, _DEVICE_MEMORY),
        (FailureKind.SHARED_MEMORY, _SHARED_MEMORY),
        (FailureKind.MEMORY, _MEMORY),
        (FailureKind.STORAGE, _STORAGE),
        (FailureKind.NETWORK, _NETWORK),
    )
)
#: Errors that only a connection between workers gives.
_PEER = re.compile(
    r"gloo[/\\]|\bnccl|\bNCCL|Dist(Network|Store|Backend)Error|recvValue|(send|recv)Bytes failed"
)
#: How Python ends a traceback; a module path, a name, perhaps words.
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.*))?$')
#: Lines that Python prints between two exceptions of a chain: ``raise … from``, and in a handler.
_CAUSED = re.compile(r"^The above exception was the direct cause of .*:$", re.MULTILINE)
_CONTEXT = re.compile(r"^During handling of the above exception, another .*:$", re.MULTILINE)
#: A file system that has less is full: what is left of it is too little for a tensor.
FULL_BYTES = 1 << 20
#: What writes beside the file and removes that at a failure leaves as much room as there was.
_FULL = re.compile(r"No space left on device|\[Errno 28\]|\(os error 28\)")
_INSTALLED = re.compile(r"-packages/|/lib/python|/launcher/inject/|/collectors/probe/")
_NATIVE = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS", "SIGTRAP"})
#: Signals that the kernel sends for something that the process itself did.
_OWN = {
    "SIGPIPE": "it wrote to a pipe or a connection that nobody reads any more",
    "SIGALRM": "a timer that it had set ran out (signal.alarm, signal.setitimer)",
    "SIGVTALRM": "a timer that it had set ran out (signal.setitimer)",
    "SIGPROF": "a timer that it had set ran out (signal.setitimer)",
    "SIGXCPU": "the process reached its own limit on processor time (RLIMIT_CPU, ulimit -t)",
    "SIGXFSZ": "the process reached its own limit on the size of files (RLIMIT_FSIZE, ulimit -f)",
}
_WORDS_CHARACTERS = 300
#: Shared memory of a container that was given none, in which a bus error means that it is full.
_DEFAULT_SHM = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause:
    """The cause that ended one worker."""

    kind: FailureKind
    #: The worker's own error, or the meaning of its signal; one line, may be empty.
    words: str
    #: Place in the script where it was raised, ``train.py:17``; empty if unknown.
    place: str = ""
    #: A meaning for people that is more precise than the kind's; empty otherwise.
    meaning: str = ""
    evidence: tuple[Evidence, ...] = ()

    @property
    def signature(self) -> str:
        """The exception's name and location; two failures with the same signature come from the
        same bug.
        """
        return f"{self.words.partition(':')[0]} at {self.place}" if self.place else ""


def cause(code: int, message: str, signs: Signs) -> FailureCause:
    """Return the cause of one worker's end.

    Args:
        code: exit code; negative for a signal, as in ``subprocess``.
        message: text of the worker's error file (``@record``). Without such a file, a text made
            from the code, or empty.
        signs: signs that the worker's agent found.

    >>> cause(1, "", Signs(traceback='  File "a.py", line 3, in f\\nValueError: x')).kind.value
    'code'
    """
    raised = signs.traceback or message
    words = exception_in(raised) or exception_in(signs.tail)
    origin = origin_of(raised) or origin_of(signs.tail)
    place = place_in(raised) or place_in(signs.tail)
    evidence = [Evidence(label="ended with", value=_ended(code))]
    if words:
        evidence.append(Evidence(label="it said", value=words))
    if origin:
        evidence.append(Evidence(label="raised from", value=origin))
    if place:
        evidence.append(Evidence(label="raised at", value=place))
    hard = _by_hardware(code, signs)
    if hard is not None:
        kind, told = hard
        return FailureCause(kind=kind, words=words, place=place, evidence=(*evidence, told))
    spoken = _spoken(words, signs)
    # A loader that finds shared memory full says that no space is left, too.
    saving = signs.saving if spoken is None or spoken[0] is not FailureKind.SHARED_MEMORY else ""
    if saving and signs.free_bytes is not None and _too_little(signs.free_bytes, words):
        return FailureCause(
            kind=FailureKind.STORAGE,
            words=f"no space left to save {saving}",
            place=place,
            meaning="the disk is full",
            evidence=(*evidence, Evidence(label="free there", value=f"{signs.free_bytes} bytes")),
        )
    if spoken is None and origin and (spoken := _by_words(origin)) is not None:
        words = f"{words}, raised from {origin}"
        spoken = spoken[0], words
    if spoken is not None:
        kind, line = spoken
        if line != words:
            evidence.append(Evidence(label="it printed", value=line))
        meaning = _limited(kind, signs) or _shared(kind, signs) or _unread(kind, signs)
        return FailureCause(
            kind=kind, words=words or line, place=place, meaning=meaning, evidence=tuple(evidence)
        )
    if code == -signal.SIGBUS and (signs.shm_bytes or _DEFAULT_SHM + 1) <= _DEFAULT_SHM:
        kind = FailureKind.SHARED_MEMORY
        meaning = _shared(kind, signs)
        return FailureCause(kind=kind, words=words, meaning=meaning, evidence=tuple(evidence))
    # What left the script ended it, whatever signal came while it was on its way out.
    kind = FailureKind.CODE if words and signs.traceback else _by_code(code, words)
    own = signal_name(code if code < 0 else 128 - code)
    killed = kind is FailureKind.KILLED
    meaning = (_OWN.get(own) or _orphaned(signs) or _limited(kind, signs)) if killed else ""
    return FailureCause(
        kind=kind, words=words, place=place, meaning=meaning, evidence=tuple(evidence)
    )


def exception_in(text: str) -> str:
    """Return the last line of the last traceback in a text; empty if there is none.

    >>> exception_in('Traceback (most recent call last):\\n  File "a", line 1\\nKeyError: 3\\nbye')
    'KeyError: 3'
    """
    lines = [line.rstrip() for line in text.splitlines()]
    framed = [at for at, line in enumerate(lines) if _FRAME.match(_bare(line))]
    if not framed:
        return ""
    for line in lines[framed[-1] + 1 :]:
        bare = _bare(line)
        if bare and not bare[0].isspace() and _EXCEPTION.match(bare):
            return bare[:_WORDS_CHARACTERS]
    return ""


def origin_of(text: str) -> str:
    """Return, in one line, the exception from which the last exception of a text was raised
    (``raise … from``), or the first one of a longer chain; empty if there is none.

    >>> origin_of(
    ...     'Traceback (most recent call last):\\n  File "a", line 1\\nOSError: full\\n\\n'
    ...     'The above exception was the direct cause of the following exception:\\n\\n'
    ...     'Traceback (most recent call last):\\n  File "a", line 2\\nValueError: b'
    ... )
    'OSError: full'
    """
    *before, last = _CAUSED.split(text)
    if not before or _CONTEXT.search(last):
        return ""
    return exception_in(_CONTEXT.split(before[0])[-1])


def place_in(text: str) -> str:
    """Return the script's innermost frame, as ``file:line``, in the last traceback that has one.

    If no traceback has a frame of the script, return the last traceback's innermost frame. Frames
    in installed libraries, and in Brain's code around a save, do not belong to the script. A text
    may have several tracebacks, because some exceptions quote a traceback in their message.
    """
    traces: list[list[tuple[str, str]]] = [[]]
    for line in text.splitlines():
        bare = _bare(line)
        if bare.startswith("Traceback (most recent"):
            traces.append([])
        elif match := _FRAME.match(bare):
            traces[-1].append((match["file"], match["line"]))
    own = ([each for each in trace if not _INSTALLED.search(each[0])] for trace in traces[::-1])
    found = next(filter(None, own), None) or next(filter(None, traces[::-1]), None)
    if found is None:
        return ""
    file, line = found[-1]
    return f"{file.rpartition('/')[2]}:{line}"


def is_victim(kind: FailureKind) -> bool:
    """True if the error may be the effect of a peer's failure."""
    return kind is FailureKind.NETWORK


def lost_a_peer(why: FailureCause) -> bool:
    """True if the text comes from a collective whose peer has ended, and not from other network
    use.
    """
    return is_victim(why.kind) and bool(_PEER.search(why.words))


def _by_hardware(code: int, signs: Signs) -> tuple[FailureKind, Evidence] | None:
    if signs.lost_cards:
        cards = ", ".join(signs.lost_cards)
        return FailureKind.DEVICE, Evidence(label="no longer listed by the driver", value=cards)
    sick = [each for each in signs.xids if _number(each) in SICK_XIDS]
    if sick:
        return FailureKind.DEVICE, Evidence(label="Xid in the kernel's log", value=", ".join(sick))
    if code == -signal.SIGKILL and (signs.oom_kills or signs.host_oom_kills):
        where = "its control group" if signs.oom_kills else "the machine"
        ended = signs.oom_kills or signs.host_oom_kills
        value = f"out-of-memory kills in {where} since the worker started: {ended}"
        return FailureKind.MEMORY, Evidence(label="the kernel's count", value=value)
    return None


def _too_little(free_bytes: int, words: str) -> bool:
    """True if a save failed because the disk was full."""
    return free_bytes < FULL_BYTES or bool(_FULL.search(words))


def _orphaned(signs: Signs) -> str:
    """Return the meaning if a signal to the fork server ended its workers, and the remedy."""
    if not signs.parent_signal:
        return ""
    return (
        f"{signs.parent_signal} ended the fork server, which is the parent process of the workers, "
        "and so ended the workers; if the script signals its parent (os.getppid()), set BRAIN_OFF=1"
    )


def _limited(kind: FailureKind, signs: Signs) -> str:
    """Return which of the process's own limits refused memory (no kernel counter rose) or a larger
    file, or may have ended it.
    """
    files = [each for each in signs.limits if each.startswith("RLIMIT_FSIZE")]
    times = [each for each in signs.limits if each.startswith("RLIMIT_CPU")]
    memory = [each for each in signs.limits if each not in (*files, *times)]
    if kind is FailureKind.KILLED and times:
        said = times[0].replace(" ", " is ")
        return (
            f"the process reached its own limit on processor time ({said} s), or a person or "
            "program killed it"
        )
    if kind is FailureKind.STORAGE and files:
        return f"the process reached its own limit on the size of files: {_said(files)}"
    if kind is not FailureKind.MEMORY or not memory or signs.oom_kills or signs.host_oom_kills:
        return ""
    return f"the process reached its own limit on memory, not the machine's: {_said(memory)}"


def _shared(kind: FailureKind, signs: Signs) -> str:
    """Return the remedy if shared memory ran out."""
    if kind is not FailureKind.SHARED_MEMORY:
        return ""
    has = "" if signs.shm_bytes is None else f", which has {signs.shm_bytes >> 20} MiB"
    return (
        f"shared memory (/dev/shm{has}) is full: give the container more (docker run --shm-size; "
        "on Kubernetes an emptyDir of medium Memory at /dev/shm), or take fewer loader workers"
    )


def _said(limits: Sequence[str]) -> str:
    return ", ".join(f"{each.replace(' ', ' is ')} bytes" for each in limits)


def _unread(kind: FailureKind, signs: Signs) -> str:
    if kind is not FailureKind.CODE or not signs.unread:
        return ""
    return f"the program that read its {signs.unread} has ended"


def _spoken(words: str, signs: Signs) -> tuple[FailureKind, str] | None:
    """Return what the worker's own error says, or without one its output."""
    if signs.unread and words.startswith("BrokenPipeError"):
        return FailureKind.CODE, words
    return _by_words(words or signs.tail)


def _by_words(text: str) -> tuple[FailureKind, str] | None:
    for kind, pattern in _TABLE:
        if match := pattern.search(text):
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[begin:].partition("\n")[0].strip()
            return kind, line[:_WORDS_CHARACTERS]
    return None


def _by_code(code: int, words: str) -> FailureKind:
    if code < 0:
        native = signal_name(code) in _NATIVE
        return FailureKind.CRASH if native else FailureKind.KILLED
    if words:
        return FailureKind.CODE
    # A shell's way to say "by a signal"; 126 and 127 say that nothing could be run.
    if code > 128 and signal_name(128 - code).startswith("SIG"):
        return _by_code(128 - code, "")
    return FailureKind.EXIT


def signal_name(code: int) -> str:
    """Return the name of the signal for a negative code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _ended(code: int) -> str:
    return f"{signal_name(code)} (signal {-code})" if code < 0 else f"exit code {code}"


def _number(xid: str) -> int:
    digits = re.match(r"\d+", xid)
    return int(digits[0]) if digits else 0


def _bare(line: str) -> str:
    """Return the line without the rank that torch and launchers put in front."""
    return re.sub(r"^\[[^\]]*\d+\]:\s?", "", line)
