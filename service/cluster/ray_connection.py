"""Joins and leaves a Ray cluster. Calls to it run in threads, have a time-out and raise ClusterError after it."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from ...workers.forkserver.client import ForkError
from ...workers.supervisor.ranks.placement_group import NAMESPACE
from ..errors import ClusterError, GangLost
from . import ray_private
from .ray_head import HeadError

T = TypeVar("T")

_BELOW: Final[tuple[type[Exception], ...]] = (HeadError, ForkError, OSError, RuntimeError, ValueError)

#: Seconds until a call fails, and until joining a cluster does.
ANSWER_S: Final = 20.0
CONNECT_S: Final = 120.0


async def in_thread(work: Callable[..., T], timeout_s: float, *arguments: Any) -> T:
    """Run blocking work in a daemon thread, so that a call that hangs in Ray blocks neither the loop nor the process's exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work(*arguments)
        except Exception as raised:  # noqa: BLE001  (top of a thread: the caller's future gets it)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"ray {work.__name__}", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError as error:
        raise ClusterError(f"the Ray cluster did not answer within {timeout_s:.0f} s") from error
    except (ClusterError, GangLost):
        raise
    except Exception as error:
        if not isinstance(error, _BELOW) and not _is_of_ray(error):
            raise
        raise ClusterError(f"{type(error).__name__}: {error}", remedy="Look at the Ray cluster's health.") from error


@contextlib.contextmanager
def as_cluster_error(what: str) -> Iterator[None]:
    """Raise ClusterError for errors of Ray, and of the connection to it. `what` was asked for, and begins the message."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not _is_of_ray(error):
            raise
        raise ClusterError(f"{what}: {error}", remedy="Look at the Ray cluster's health.") from error


def _is_of_ray(error: Exception) -> bool:
    """Whether Ray raised it. Its client for `ray://` raises a plain Exception while it is not connected."""
    return type(error) is Exception or isinstance(error, _errors_of_ray())


def _errors_of_ray() -> tuple[type[Exception], ...]:
    """Ray's own errors, if it is imported: before that it raises none, and its import takes a second."""
    if "ray" not in sys.modules:
        return ()
    from ray.exceptions import RayError

    return (RayError,)


class Remote:
    """A function or class as Ray runs it, with these options of `ray.remote`."""

    def __init__(self, task: Any, options: dict[str, Any]) -> None:
        self._task = task
        self._options = options
        self._made: Any = None

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Call it with these options, too: a reference to the function's result, or the actor.

        The first call sends its name over `ray://`. ClusterError if an earlier version runs there, which does not know that name.
        """
        made = self._made = self._made or self._make()
        try:
            return made.options(**options).remote(*arguments)
        except Exception as error:
            self._made = None  # one that Ray's client failed to send is not sent again, and fails at each call
            if not isinstance(error, (AttributeError, ImportError)):
                raise
            remedy = "Replace the pods or processes of Ray, so that they have this version."
            raise ClusterError(
                f"the Ray cluster does not know {self._task.__name__}: {error}", remedy=remedy
            ) from error

    def _make(self) -> Any:
        import ray

        return ray.remote(**self._options)(self._task) if self._options else ray.remote(self._task)


@cache
def remote(task: Any, **options: Any) -> Remote:
    """The function or class with these options of `ray.remote`: always the same one, as Ray keeps each that was called."""
    return Remote(task, options)


def inside(function: Callable[..., T], *arguments: Any) -> T:
    """Call what reads or changes the cluster's state: here or, over `ray://`, from where much of it cannot be called, in a task there.

    A cluster of an earlier version may not know the function. Then it is called here all the same, which suffices for gangs.
    """
    import ray
    from ray.util.client import ray as client

    if not client.is_connected():
        return function(*arguments)
    try:
        task = remote(function, num_cpus=0).start(*arguments)
    except ClusterError:
        return function(*arguments)
    result: T = ray.get(task, timeout=ANSWER_S)
    return result


def import_ray() -> None:
    import ray  # noqa: F401


def explain_token(path: Path | None) -> None:
    """Set the path of Ray's token in the environment explicitly; otherwise Ray looks for it in the home folder."""
    if path is not None:
        os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)})
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def join(address: str, loopback: bool = False) -> None:
    import ray

    # While this call is under way, other threads' calls are to fail: on another cluster all gangs would seem to be lost.
    ray_private.connect_only_by_init()
    if loopback:
        # The head's environment variables, for a process that had imported Ray before; see `ray_head.py`.
        ray_private.stay_on_loopback()
    if ray.is_initialized():
        ray.shutdown()
    ray_private.forget_token()  # another head has another token
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
    )


def restore_sigterm() -> None:
    """Restore our SIGTERM handler: Ray's core has replaced it by its own (a stack dump, then death), without Python noticing."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def leave() -> None:
    import ray

    ray.shutdown()
