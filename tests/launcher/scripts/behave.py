"""A worker that does one thing, named by its first argument, and says what it saw."""

import atexit
import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid

AT_START = sorted(globals())


def say(text: str) -> None:
    """In one piece, or two workers' lines mix."""
    os.write(1, f"{text}\n".encode())


def interpreter() -> None:
    main = sys.modules["__main__"]
    streams = (sys.stdin, sys.stdout, sys.stderr)
    facts = {
        "flags": str(sys.flags),
        "argv": sys.argv,
        "orig argv": sys.orig_argv[1:],
        "executable": os.path.basename(sys.executable).rstrip("0123456789."),
        "path[0]": sys.path[0],
        "options": [sys.warnoptions, sorted(sys._xoptions)],
        "globals": AT_START,
        "main": {
            "name": main.__name__,
            "file": main.__file__,
            "package": main.__package__,
            "spec": getattr(main.__spec__, "name", None),
            "loader": str(getattr(main.__loader__, "__name__", type(main.__loader__).__name__)),
            "builtins": type(__builtins__).__name__,
            "doc": (main.__doc__ or "")[:20],
            "cached": getattr(main, "__cached__", "absent"),
            "me": main is sys.modules[say.__module__],
        },
        "streams": [
            (
                s.fileno(),
                s.name,
                s.encoding,
                s.errors,
                s.line_buffering,
                s.write_through,
                s.isatty(),
            )
            for s in streams
        ],
        "descriptors": sorted(int(each) for each in os.listdir("/proc/self/fd"))[:-1],
        "handlers": {
            s.name: str(getattr(h, "__name__", h))
            for s in signal.Signals
            if (h := signal.getsignal(s)) != signal.SIG_DFL
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": [threading.active_count(), threading.current_thread().name],
        "leads a session": os.getsid(0) == os.getpid() == os.getpgrp(),
        "umask": os.umask(0o22),
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "daemon": multiprocessing.current_process().name,
        "hash": hash("x") if "PYTHONHASHSEED" in os.environ else None,
        "tracing": [sys.gettrace(), sys.getprofile()],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "assertions": __debug__,
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
    }
    for name, fact in facts.items():
        say(f"{name}: {json.dumps(fact, default=str)}")


def chance() -> None:
    say(f"{random.random()}")
    say(f"{uuid.uuid4()}")
    say(f"{os.urandom(8).hex()}")


class Late:
    def __del__(self) -> None:
        os.write(1, b"deleted\n")


def ends() -> None:
    global late
    late = Late()
    atexit.register(say, "registered first")
    atexit.register(say, "registered last")
    print("not flushed", end="")
    threading.Thread(target=lambda: (time.sleep(0.3), say("thread")), name="slow").start()


def square(number: int) -> int:
    return number * number


def multiprocess(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        say(str(pool.map(square, range(4))))


def nested() -> None:
    inside = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "behave.py",
        "tells",
    ]
    ran = subprocess.run(inside, stdout=subprocess.PIPE, check=False, timeout=60)
    say(f"inside: {ran.returncode} {sorted(ran.stdout.decode().split())}")


def dies(name: str) -> None:
    os.kill(os.getpid(), signal.Signals[name])
    time.sleep(30)


def exits(how: str) -> None:
    if how == "hard":
        print("lost", end="")
        os._exit(9)
    sys.exit({"text": "told so", "tuple": ()}[how] if how.isalpha() else int(how))


def tells_streams(path: str) -> None:
    """Into a file, which gets the descriptor of a stream that is closed."""
    with open(path, "w") as file:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(None if stream is None else stream.name, file=file)
        print("in the file's place:", file.fileno() if file.fileno() <= 2 else "none", file=file)
        print("to nobody, or to the console")


def raises() -> None:
    raise ValueError("the loss is a banana")


def one_fails() -> None:
    if os.environ["RANK"] == "1":
        sys.exit(5)
    time.sleep(60)


def fails(times: str) -> None:
    count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    say(f"attempt {count} of at most {os.environ['TORCHELASTIC_MAX_RESTARTS']}")
    sys.exit(3 if count < int(times) else 0)


def vanishes() -> None:
    os.unlink(__file__)
    say(f"gone, and {os.environ['TORCHELASTIC_RESTART_COUNT']} restarts")
    sys.exit(4)


def ready(what: str = "ready") -> None:
    open(os.path.join(os.environ["SEEN"], f"{what}-" + os.environ["RANK"]), "w").close()


def waits() -> None:
    ready()
    time.sleep(60)


def lasts() -> None:
    ready()
    for _ in range(60):
        time.sleep(0.1)
    say(f"through at attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}")


def saves(seconds: str = "0") -> None:
    def save(signum: int, _: object) -> None:
        signal.signal(signum, signal.SIG_IGN)  # asked twice, one save is enough
        ready("saving")
        time.sleep(float(seconds))
        say(f"rank {os.environ['RANK']} saved at {signal.Signals(signum).name}")
        sys.exit(0)

    for name in os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"].split(","):
        signal.signal(signal.Signals[name], save)
    ready()
    time.sleep(60)


def takes_its_signal(seconds: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        time.sleep(float(seconds))
        say("saved")
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    ready()
    time.sleep(60)


def uploads(directory: str, when: str = "at its end") -> None:
    def upload(*_: object) -> None:
        command = f"sleep 1; echo yes > {directory}/half; mv {directory}/half {directory}/uploaded"
        subprocess.Popen(["sh", "-c", command], start_new_session=True)
        sys.exit(0)

    if when == "at its end":
        upload()
    signal.signal(signal.SIGTERM, upload)
    waits()


def prints(what: str) -> None:
    if what == "many":
        for number in range(20_000):
            print(f"line {number} " + "x" * 50)
    elif what == "unicode":
        print("größer, 大きい, \N{SNOWMAN}\u2028, e\u0301")
    elif what == "bytes":
        os.write(1, b"before \xff\xfe after\nnext\n")
    elif what == "for ever":
        for number in range(10_000_000):
            print(f"line {number}", flush=True)
    else:
        print("first\nno end", end="")


def seeds_wrongly() -> None:
    random.seed("no number")
    say(f"{random.random()}")
    try:
        random.seed([])  # type: ignore[arg-type]
    except TypeError as refused:
        say(f"{refused}")


def moves() -> None:
    os.chdir("/")
    os.environ.clear()
    say(f"{os.getcwd()} {sorted(os.environ)}")


def forgets() -> None:
    """Closes what it does not own."""
    os.closerange(3, 4096)
    with open("/dev/null") as first:
        say(f"{first.fileno()}")
    os.close(0)


def leaves_a_fork() -> None:
    """A child that ends with a code of its own."""
    if os.fork() == 0:
        time.sleep(0.5)
        say("child")
        os._exit(3)
    say("parent")
    say(f"{os.waitstatus_to_exitcode(os.wait()[1])}")


def ends_in_a_thread(how: str) -> None:
    """Not where the main thread is."""
    acts = {"exits": lambda: sys.exit(5), "leaves": lambda: os._exit(1), "raises": raises}
    thread = threading.Thread(target=acts[how], name="other")
    thread.start()
    thread.join()
    say("main thread goes on")


def in_turn(*acts: str) -> None:
    """Several acts, each with its words."""
    for act in acts:
        name = act if act in ACTS else act.split()[0]
        ACTS[name](*act.removeprefix(name).split())


ACTS = {
    "in turn": in_turn,
    "seeds wrongly": seeds_wrongly,
    "moves": moves,
    "forgets": forgets,
    "leaves a fork": leaves_a_fork,
    "ends in a thread": ends_in_a_thread,
    "interpreter": interpreter,
    "chance": chance,
    "ends": ends,
    "multiprocessing": multiprocess,
    "nested": nested,
    "tells": lambda: say(os.environ["RANK"]),
    "reads": lambda: say(f"read {sys.stdin.read().splitlines()}"),
    "dies": dies,
    "aborts": os.abort,
    "exits": exits,
    "raises": raises,
    "tells streams": tells_streams,
    "one fails": one_fails,
    "fails": fails,
    "vanishes": vanishes,
    "waits": waits,
    "lasts": lasts,
    "saves": saves,
    "takes its signal": takes_its_signal,
    "uploads": uploads,
    "prints": prints,
}

if __name__ == "__main__":
    ACTS[sys.argv[1]](*sys.argv[2:] if sys.argv[1] != "interpreter" else ())
