"""Python imports this at the start of each process of a program: it lets Shardyard see where the process is, and why it failed.

It does seven things, and changes nothing else in the program:

- A line that the program prints is one write: ranks of one command share its standard output, where their lines would mix.
- An exception that ends the process is reported, with its traceback.
- `import shardyard` works in an environment that lacks it, for `shardyard.log` in Python 3.11 or newer; others are named as the reason.
- In a process that has joined a torch.distributed group, a thread reports all stacks and what torch's flight recorders have, when asked.
- In a process that has joined such a group, or made a step of an optimizer of torch, a thread records it when asked (`step_recorder.py`).
- In a driver of Ray a thread reports all stacks, and Ray Train's reports are logged.
- At the end of a process that has torch.distributed, threads of gloo that are late are waited for, as they could abort it.

Reports go to a UNIX socket of the rank's trainer process, in the kernel's abstract namespace: there is no file that could remain.

The program's own `sitecustomize` is imported, too. Needs only the standard library, of Python 3.8 or newer. Some modules of the package
that this file is part of are loaded by their paths, because the package may not be installed in this interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = "shardyard"
C10D = "torch.distributed.distributed_c10d"
OPTIMIZER = "torch.optim.optimizer"
#: What a process of a Ray job is: `driver`, or `node` for all processes of the Ray nodes.
RAY_ROLE = "SHARDYARD_RAY"
TRAIN_CLEANER = "ray.train.v2._internal.execution.controller.placement_group_cleaner"
#: How Ray Train's name of the thread that trains begins.
TRAIN_THREAD = "TrainingThread("
TRAIN_CALLBACKS = "RAY_TRAIN_CALLBACKS"
TRAIN_REPORTS = "shardyard.workers.program.ray_train_reports.TrainReports"
#: Whether this Python is one that the package supports.
SUPPORTED = sys.version_info[:2] >= (3, 11)
MOST_TEXT = 64 << 10
#: Seconds for the trainer process to take a report.
REPORT_S = 2.0


def begin(name: str) -> None:
    """Report to the socket of this name. Empty: report nothing, as a user's command beside the rank does."""
    _write_whole_lines()
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    _import_own_sitecustomize()
    sys.meta_path.append(_ThisPackage())
    if not name:
        return
    atexit.register(_let_late_threads_end)  # before the program registers any, so that it is the last
    role = os.environ.get(RAY_ROLE)
    if role == "node":  # whose exceptions Ray passes to the driver
        _silence_placement_group_cleaner()
    else:
        _report_exceptions(name)
    sys.meta_path.insert(0, _WhenImported(C10D, functools.partial(_report_with_groups, name=name)))
    sys.meta_path.insert(0, _WhenImported(OPTIMIZER, functools.partial(_record_after_steps, name=name)))
    if role == "driver":
        _begin_to_report(name, {"driver": True})
        _log_train_reports()


def _write_whole_lines() -> None:
    """Write each line at once, and no part of it before. `PYTHONUNBUFFERED`, which programs have, writes each argument of `print` alone."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or not Python's own
            if stream.write_through and not stream.isatty():
                stream.reconfigure(line_buffering=True, write_through=False)


def _let_late_threads_end() -> None:
    if C10D in sys.modules:
        with contextlib.suppress(ImportError, OSError):  # the program ends without it
            _loaded("gloo_threads").let_late_ones_end()


def _log_train_reports() -> None:
    """Ray Train makes an object of each class that this variable names, when a trainer begins."""
    own = [name for name in os.environ.get(TRAIN_CALLBACKS, "").split(",") if name not in ("", TRAIN_REPORTS)]
    if SUPPORTED:
        os.environ[TRAIN_CALLBACKS] = ",".join([*own, TRAIN_REPORTS])


def _silence_placement_group_cleaner() -> None:
    """Ray Train's cleaner asks Ray's dashboard, which the job's cluster lacks, and would warn every other second."""
    import logging

    logging.getLogger(TRAIN_CLEANER).setLevel(logging.ERROR)


def _import_own_sitecustomize() -> None:
    """The program's own module of this name, which Python would have imported instead of this one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _report_exceptions(name: str) -> None:
    usual = sys.excepthook
    connected: list[int] = []  # processes, to their ends, by which the trainer process sees that they have ended

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usual(kind, error, trace)
        if issubclass(kind, KeyboardInterrupt):
            return
        text = "".join(traceback.format_exception(kind, error, trace))
        root = _raised_in_worker(error)
        failure = {"type": type(root).__name__, "message": _end_of(_text_of(root)), "traceback": _end_of(text)}
        try:
            connection = _connected(name, {"failed": failure})
        except (OSError, ValueError):
            return  # the program's own report is in its log
        if os.getpid() in connected:  # the program calls the hook
            connection.close()
        else:
            connected.append(os.getpid())
            connection.detach()

    sys.excepthook = hook


def _text_of(error: BaseException) -> str:
    """Its message; of a class whose `__str__` fails what Python's own report says."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # the user's own code
        return "<exception str() failed>"


def _raised_in_worker(error: BaseException) -> BaseException:
    """The exception of a task or actor of Ray that a driver's wraps, whose message is the worker's traceback; any other unchanged."""
    cause = getattr(error, "cause", None)
    return cause if type(error).__name__.startswith("RayTaskError") and isinstance(cause, BaseException) else error


def _end_of(text: str) -> str:
    """The last lines, whole, so that secrets in them are recognised. Without colours, which Ray adds."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    if len(text) <= MOST_TEXT:
        return text
    return text[-MOST_TEXT:].partition("\n")[2] or f"(a line of {len(text):,} characters)"


def _connected(name: str, first: dict[str, Any]) -> Any:
    """A connection on which this line was sent, with the process's id."""
    import socket

    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(REPORT_S)
        _loaded("unix_socket").connect(connection, "\0" + name, REPORT_S)
        connection.sendall(_line({"pid": os.getpid(), "rank": os.environ.get("RANK"), **first}))
    except BaseException:
        connection.close()
        raise
    return connection


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds a module once, and calls a function with it when it has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            usual = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                usual(module)
                self.then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _ThisPackage(importlib.abc.MetaPathFinder):
    """Finds the package that this file is part of, where the environment has none of its name. Raises ModuleNotFoundError."""

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        root = HERE.parents[2]
        if fullname != PACKAGE:
            return None
        if not SUPPORTED:
            version = ".".join(map(str, sys.version_info[:2]))
            raise ModuleNotFoundError(f"{PACKAGE} needs Python 3.11 or newer, and this is {version}", name=PACKAGE)
        return importlib.util.spec_from_file_location(
            fullname, root / "__init__.py", submodule_search_locations=[str(root)]
        )


def _report_with_groups(module: Any, name: str) -> None:
    usual = module.init_process_group
    begun: list[int] = []

    @functools.wraps(usual)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = usual(*args, **kwargs)
        if os.getpid() not in begun:
            begun.append(os.getpid())
            with contextlib.suppress(ImportError, OSError):  # the program runs without it
                _recorder(name).begin()
            _begin_to_report(socket_name() or name, {})  # Ray Train names the rank only after the process's start
        return result

    module.init_process_group = init_process_group


def _record_after_steps(module: Any, name: str) -> None:
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:  # torch 2.0 or newer
        with contextlib.suppress(ImportError, OSError):  # the program runs without it
            register(_recorder(name).after_step)


@functools.lru_cache(maxsize=None)  # noqa: UP033  # `cache` is not in Python 3.8
def _recorder(name: str) -> Any:
    """That of this process. It connects to the rank's trainer process with the first group or step."""

    def connect() -> Any:
        return _connected(socket_name() or name, {"records": True})

    return _loaded("step_recorder").StepRecorder(lambda: _loaded("torch_recordings"), connect)


def _begin_to_report(name: str, hello: dict[str, Any]) -> None:
    """Answer each line, a number, with it and this process's status, on a thread."""
    import threading

    try:
        stacks, dumps = _loaded("thread_stacks").stacks, _loaded("recorder_dumps").dumps
        connection = _connected(name, hello)
    except (ImportError, OSError):
        return  # the program runs without it

    def report() -> None:
        with connection, connection.makefile("rb") as questions:
            for question in questions:
                collectives = {"dumps": dumps(), "groups": groups(), "joined": joined()}
                connection.sendall(_line({"asked": int(question), "stacks": _ordered(stacks()), **collectives}))

    connection.settimeout(None)
    threading.Thread(target=_quietly, args=(report,), name="shardyard status", daemon=True).start()


def _ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stacks with that of the training first: in a worker of Ray Train it is not the main thread."""
    return sorted(found, key=lambda one: not one["thread"].startswith(TRAIN_THREAD))


def _quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, ValueError):  # the trainer process is gone
        work()


def _loaded(name: str) -> Any:
    """A module in the package's folder of workers."""
    spec = importlib.util.spec_from_file_location(f"_shardyard_{name}", HERE.parents[1] / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups() -> dict[str, list[int]]:
    """Name of each process group → its ranks in the world. Empty for a torch that keeps them otherwise."""
    try:
        c10d = sys.modules[C10D]
        known = list(c10d._world.pg_names.items())
        return {name: c10d.get_process_group_ranks(group) for group, name in known}
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return {}


def joined() -> bool:
    """Whether this process is in a process group. The flight recorders keep its collectives when it has destroyed all of them."""
    try:
        return bool(sys.modules[C10D].is_initialized())
    except (AttributeError, KeyError):  # not imported, or not yet
        return False


def socket_name() -> str:
    """That of this process's rank (`socket_name` in report_socket.py, which may not be importable here). Empty outside a job."""
    names = os.environ.get("SHARDYARD_PROGRAM_SOCKET", "").split(",")
    local = os.environ.get("LOCAL_RANK", "0")
    return names[int(local) if local.isdecimal() and int(local) < len(names) else 0]


if __name__ == "sitecustomize":
    begin(socket_name())
