# Generated from api/client/_async/sweep_endpoints.py; change that file, then run: make sync-client
"""The calls of `Client` about sweeps."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ....service.schemas.sweep import SweepDetail, Sweeps, SweepTrials
from .. import requests, sweep_requests
from ..transport import ApiError, Call, may_pass, pause_of
from .runtime import Answer, sleep

T = TypeVar("T")


class SweepEndpoints(ABC):
    """The client implements how a request is sent and repeated, and how code is uploaded."""

    @abstractmethod
    def _send(self, call: Call[T]) -> T: ...

    @abstractmethod
    def retry_unreachable(self, request: Callable[[], Answer[T]], until: float | None = None) -> T: ...

    @abstractmethod
    def _uploaded(self, document: Any, on_upload: Callable[[int, int], None] | None) -> Any: ...

    def submit_sweep(
        self,
        spec: requests.Spec,
        *,
        idempotency_key: str | None = None,
        on_upload: Callable[[int, int], None] | None = None,
    ) -> SweepDetail:
        """Submit a sweep: a job's spec with a part `sweep`. Otherwise as `submit`; returns the stored sweep."""
        document = self._uploaded(requests.document(spec), on_upload)
        return self._send(sweep_requests.submit(document, idempotency_key))

    def wait_for_sweep(self, sweep: str, timeout_s: float | None = None) -> SweepDetail:
        """The sweep once it has ended. Raises `TimeoutError` when that takes longer than `timeout_s`. Otherwise as `wait`."""
        began = time.monotonic()
        until = None if timeout_s is None else began + timeout_s
        found = self.sweep(sweep)
        while found.finished_at is None:
            waited_s = time.monotonic() - began
            if timeout_s is not None and waited_s >= timeout_s:
                raise TimeoutError(f"{found.id} is {found.state} after {timeout_s:g} s.")
            sleep(pause_of(waited_s, timeout_s))
            try:
                found = self.retry_unreachable(partial(self.sweep, found.id), until)
            except ApiError as error:
                if timeout_s is None or not may_pass(error) or time.monotonic() < began + timeout_s:
                    raise
                state = f"{found.id} was {found.state} when the control plane last answered"
                raise TimeoutError(f"{state}, and {timeout_s:g} s have passed.") from error
        return found

    def sweeps(self, *, limit: int = 50, cursor: str | None = None) -> Sweeps:
        """One page of sweeps, newest first."""
        return self._send(sweep_requests.sweeps(limit, cursor))

    def sweep(self, sweep: str) -> SweepDetail:
        """A sweep by its id, or the newest of that name."""
        return self._send(sweep_requests.sweep(sweep))

    def trials(self, sweep: str, *, since: float | None = None) -> SweepTrials:
        """The trials of a sweep, by number. `since`: the `as_of` of an earlier answer; only those that may have changed since then."""
        return self._send(sweep_requests.trials(sweep, since))

    def cancel_sweep(self, sweep: str) -> SweepDetail:
        """Cancel all trials of a sweep that have not ended. Repeating is harmless. Raises `ApiError` `sweep_ended`."""
        return self._send(sweep_requests.cancel(sweep))
