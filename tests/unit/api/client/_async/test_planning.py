"""A user's own module is dry-run here before a preview and a submission, and only there does its failure matter."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from shardyard.api.client._async.planning import AsyncPlanning
from shardyard.api.client.transport import ApiError, Call, Unreachable
from shardyard.service.schemas.memory_plan import MemoryPlan
from shardyard.service.schemas.preview import Preview
from shardyard.service.schemas.problem import FieldError
from shardyard.service.spec import JobSpec
from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run import module_plan
from shardyard.workers.dry_run.processes import DryRunFailed, DryRunUnavailable
from shardyard.workers.own_plan import digest
from shardyard.workers.planned_memory import HeldBytes, PlannedMemory
from shardyard.workers.spec import TrainSpec

T = TypeVar("T")
OWN: dict[str, Any] = {"import": "net:make", "code": "/code"}
BROKEN = "The dry run of rank 0 failed: KeyError: 3"


def document(**changes: Any) -> dict[str, Any]:
    return {"name": "mine", "train": {"model": OWN, "layout": {"data": 2}, "steps": 2, "global_batch": 8, **changes}}


class Service(AsyncPlanning):
    """A control plane with room for plans of `room` bytes. `sent`: the specs of all previews."""

    def __init__(self, room: int = 100) -> None:
        self.room, self.sent = room, list[JobSpec]()

    async def _send(self, call: Call[T]) -> T:
        assert call.content is not None and call.path == "/v1/jobs/preview"
        spec = JobSpec.model_validate_json(call.content)
        self.sent.append(spec)
        found, memory = spec.train.planned, None
        if found is not None:
            needed = found.at_peak.activations
            if needed > self.room:
                raise ApiError("does_not_fit", "It does not fit.", 422, [FieldError(message="A rank needs more.")])
            memory = MemoryPlan(
                device="cuda", source="dry run", fits=True, bytes=needed, needed_bytes=needed, reserved_bytes=0, device_bytes=None,
                kinds=[], host=[], notes=[],
            )  # fmt: skip
        needs = spec.train.model.import_ is not None and found is None
        return call.read(
            Preview(
                name="mine", layout="", batch="", world_size=2, precision="fp32", memory=memory, needs_dry_run=needs
            ).model_dump(mode="json")
        )

    async def submitted(self, given: Any, plan_s: float | None = 60.0) -> tuple[Any, list[str]]:
        """The spec that would be submitted, and why it has no plan."""
        reasons: list[str] = []
        found, _ = await self._planned(given, plan_s, reasons.append)
        return found, reasons


@pytest.fixture
def dry_runs(monkeypatch: pytest.MonkeyPatch) -> list[TrainSpec]:
    """The specs that were dry-run. Recompute halves the activations."""
    asked: list[TrainSpec] = []

    def planned_memory(train: TrainSpec, precision: str, seconds: float) -> PlannedMemory:
        asked.append(train)
        held = HeldBytes(activations=50 if train.recompute.mode == "full" else 90)
        return PlannedMemory(of=digest(train), ranks=2, parameters=1, at_peak=held)

    monkeypatch.setattr(module_plan, "planned_memory", planned_memory)
    return asked


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def planned_memory(train: TrainSpec, precision: str, seconds: float) -> PlannedMemory:
        raise error

    monkeypatch.setattr(module_plan, "planned_memory", planned_memory)


async def test_a_preview_has_the_plan_of_the_dry_run(dry_runs: list[TrainSpec]) -> None:
    service = Service()
    found = await service.preview(document(), plan_s=60.0)
    assert found.memory is not None and found.memory.source == "dry run" and found.memory.bytes == 90
    assert len(dry_runs) == 1 and [spec.train.planned is None for spec in service.sent] == [True, False]


async def test_a_submission_is_sent_with_the_plan_and_a_new_one_replaces_another(dry_runs: list[TrainSpec]) -> None:
    first, _ = await Service().submitted(document())
    again, reasons = await Service().submitted(first)
    assert first == again and first["train"]["planned"]["at_peak"]["activations"] == 90
    assert len(dry_runs) == 2 and reasons == []


@pytest.mark.parametrize(
    "given", [document(model={"preset": "nano"}), {"name": "a", "command": "true"}, {"train": 3}, "text"], ids=str
)
async def test_nothing_else_is_dry_run_or_previewed_before_its_submission(
    given: Any, dry_runs: list[TrainSpec]
) -> None:
    service = Service()
    assert await service.submitted(given) == (given, [])
    assert dry_runs == [] and service.sent == []


async def test_where_the_setting_says_so_nothing_is_run(
    dry_runs: list[TrainSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", "0")
    service = Service()
    assert await service.submitted(document(), None) == (document(), [])
    assert (await service.preview(document())).memory is None and dry_runs == []
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", "30")
    await service.submitted(document(), None)
    assert len(dry_runs) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DryRunFailed(BROKEN), "KeyError: 3"),
        (Refusal("model.import", "cannot import net:make: No module named 'x'.", "Give it."), "No module named 'x'"),
        (DryRunUnavailable("A dry run needs torch."), "needs torch"),
    ],
)
async def test_a_submission_goes_on_without_a_plan_and_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    failing(monkeypatch, error)
    for given in (document(), document(planned={"of": "0" * 64, "ranks": 2, "parameters": 1, "at_peak": {}})):
        found, [reason] = await Service().submitted(given)
        assert found == given and says in reason and "\n" not in reason


async def test_a_preview_fails_with_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, DryRunFailed(BROKEN))
    with pytest.raises(ApiError, match="KeyError: 3") as caught:
        await Service().preview(document(), plan_s=60.0)
    assert caught.value.code == "dry_run_failed"


async def test_a_preview_where_there_can_be_no_dry_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, DryRunUnavailable("A dry run needs torch."))
    reasons: list[str] = []
    found = await Service().preview(document(), plan_s=60.0, on_unplanned=reasons.append)
    assert found.memory is None and found.needs_dry_run and reasons == ["A dry run needs torch."]
    plan = {"of": "0" * 64, "ranks": 2, "parameters": 1, "at_peak": {"activations": 7}}
    found = await Service().preview(document(planned=plan), plan_s=60.0)
    assert found.memory is not None and found.memory.bytes == 7, "the one that is in the spec"


async def test_what_does_not_fit_is_refused_with_the_first_change_that_fits(dry_runs: list[TrainSpec]) -> None:
    service = Service(room=60)
    with pytest.raises(ApiError) as caught:
        await service.preview(document(), plan_s=60.0)
    [finding] = caught.value.errors
    assert (caught.value.code, finding.field) == ("does_not_fit", "train.recompute")
    assert (finding.remedy or "").startswith("Set recompute: full: a rank then needs")
    assert [train.recompute.mode for train in dry_runs] == ["none", "selective", "full"]


async def test_where_no_change_fits_the_refusal_is_the_servers(dry_runs: list[TrainSpec]) -> None:
    with pytest.raises(ApiError) as caught:
        await Service(room=10).preview(document(), plan_s=60.0)
    assert [finding.message for finding in caught.value.errors] == ["A rank needs more."] and len(dry_runs) > 5


def raising(error: ApiError) -> Callable[[Call[Any]], Any]:
    async def send(call: Call[Any]) -> Any:
        raise error

    return send


async def test_a_spec_that_is_refused_before_is_left_to_the_submission(
    dry_runs: list[TrainSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    monkeypatch.setattr(service, "_send", raising(ApiError("invalid_layout", "no", 422)))
    assert await service.submitted(document()) == (document(), []) and dry_runs == []
    monkeypatch.setattr(service, "_send", raising(Unreachable("http://x", "no")))
    with pytest.raises(Unreachable):
        await service.submitted(document())
