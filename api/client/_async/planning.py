"""Previews and submissions of modules of the user's own, which are dry-run on this machine for their memory plan."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Final, TypeVar

from ....service.schemas.preview import Preview
from ....service.settings import Settings
from ....workers.dry_run.processes import DryRunUnavailable
from ....workers.planned_memory import without_plan
from .. import module_plan, requests
from ..module_plan import OnUnplanned, OwnModule
from ..transport import ApiError, Call, Unreachable
from .runtime import in_thread

T = TypeVar("T")

#: A preview, which was asked for, may take this many times as long as what a submission waits for.
_PATIENCE: Final = 10


class AsyncPlanning(ABC):
    """The client implements how a request is sent."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T: ...

    async def preview(
        self, spec: requests.Spec, *, plan_s: float | None = None, on_unplanned: OnUnplanned | None = None
    ) -> Preview:
        """Check a spec as `submit` would, and return the layout and batch it resolves to. Stores nothing. Raises `ApiError` as `submit`.

        A module of your own (`model.import`) is dry-run here for its memory plan, in at most `plan_s` seconds (None: ten times the setting
        SHARDYARD_DRY_RUN_S; 0: not at all). Raises `ApiError` `dry_run_failed` if it fails. If there can be no dry run here,
        `on_unplanned` is given the reason.
        """
        document = requests.document(spec)
        bare = without_plan(document)
        found = await self._send(requests.preview(bare))
        own = module_plan.of_preview(bare, found, _PATIENCE * Settings().dry_run_s if plan_s is None else plan_s)
        if own is not None:
            try:
                document = await in_thread(own.planned)
            except DryRunUnavailable as error:
                _say(on_unplanned, error)
        return found if document is bare else await self._fitted(own, requests.preview(document))

    async def _planned(
        self, document: Any, plan_s: float | None, on_unplanned: OnUnplanned | None
    ) -> tuple[Any, OwnModule | None]:
        """The spec to submit, with a new plan if its module can be dry-run here in time; else as it is given, which is no error."""
        if not module_plan.plans(document, plan_s):
            return document, None
        bare, seconds = without_plan(document), Settings().dry_run_s if plan_s is None else plan_s
        try:
            found = await self._send(requests.preview(bare))
        except Unreachable:
            raise
        except ApiError:  # the submission says what is wrong
            return document, None
        own = module_plan.of_preview(bare, found, seconds)
        if own is None:
            return document, None
        try:
            return await in_thread(own.planned), own
        except (ApiError, DryRunUnavailable) as error:
            _say(on_unplanned, error)
            return document, None

    async def _fitted(self, own: OwnModule | None, call: Call[T]) -> T:
        """The answer. A refusal for lack of memory names the first change with which a dry run fits, if there is time to find one."""
        try:
            return await self._send(call)
        except ApiError as error:
            refused = error
        if own is not None and refused.code == "does_not_fit":
            for change in own.changes():
                document = await in_thread(partial(own.changed, change))
                if document is not None and (found := await self._fits(document)) is not None:
                    raise module_plan.with_change(refused, change, found)
        raise refused

    async def _fits(self, document: Any) -> Preview | None:
        """The preview of a changed spec, if it fits."""
        try:
            found = await self._send(requests.preview(document))
        except ApiError:
            return None
        return None if found.memory is None or found.memory.fits is False else found


def _say(on_unplanned: OnUnplanned | None, error: Exception) -> None:
    if on_unplanned is not None:
        on_unplanned(" ".join(str(error).split()))
