"""What `auto` means on a device is a table of reasons. What a spec names is never changed, and CPUs compute as they did."""

from typing import Any, get_args

import pytest

from shardyard.service.spec import JobSpec
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.layout import ModelFacts, Refusal, Schedule
from shardyard.strategies.memory_options import check_memory_options
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.device_choices import (
    FEWEST_STEPS,
    Choices,
    DeviceFacts,
    as_reported,
    choices,
    continues_in,
    uncompiled,
)
from shardyard.workers.spec import TrainSpec

CPU, GPU = DeviceFacts("cpu"), DeviceFacts("cuda")
HOPPER, TURING = DeviceFacts("cuda", (9, 0)), DeviceFacts("cuda", (7, 5))
DENSE = ModelFacts(4, 4, 4, 352)
LONG: dict[str, Any] = {"steps": FEWEST_STEPS, "global_batch": 8}


def spec(**train: Any) -> TrainSpec:
    return TrainSpec.model_validate({**LONG, **train})


def on(device: DeviceFacts, **train: Any) -> Choices:
    return choices(spec(**train), DENSE, device)


@pytest.mark.parametrize(
    ("device", "dtype", "why"),
    [
        (CPU, "fp32", "the devices are CPUs"),
        (GPU, "bf16", "the devices are GPUs"),
        (HOPPER, "bf16", "the devices are GPUs"),
        (DeviceFacts("cuda", (8, 0)), "bf16", "the devices are GPUs"),
        (TURING, "fp32", "capability 7.5 are older than 8.0, and have no fast bf16. Set precision to fp16"),
    ],
)
def test_the_precision_follows_from_the_devices(device: DeviceFacts, dtype: str, why: str) -> None:
    found = on(device)
    assert found.train.precision.compute == dtype
    assert found.reasons[0].startswith(f"precision is {dtype}: ") and why in found.reasons[0]


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16", "fp8"])
@pytest.mark.parametrize("device", [CPU, HOPPER, TURING], ids=lambda one: str(one.capability))
@pytest.mark.parametrize("compiled", [True, False])
def test_what_the_spec_names_is_kept(dtype: str, device: DeviceFacts, compiled: bool) -> None:
    named = spec(precision=dtype, compile=compiled)
    assert choices(named, DENSE, device) == Choices(named, ())


def test_the_sums_of_gradients_are_no_choice() -> None:
    found = on(GPU, precision={"gradients": "compute"}).train.precision
    assert (found.compute, found.gradients) == ("bf16", "compute")


ZBV = {"pipeline": 2, "schedule": "zbv"}
NO_COMPILER = DeviceFacts("cuda", (9, 0), "this node has no C compiler.")

COMPILED: dict[str, dict[str, Any]] = {
    "replicas": {"layout": {"data": 2}},
    "zero-3": {"layout": {"data": 2, "zero": 3}},
    "pipeline": {"layout": {"pipeline": 2, "schedule": "interleaved"}},
    "recompute": {"recompute": "full"},
    "selective": {"recompute": "selective"},
    "fp8": {"precision": "fp8"},
    "offload": {"offload": {"optimizer": 1}},
}

NOT_COMPILED: dict[str, tuple[DeviceFacts, dict[str, Any], str]] = {
    "cpu": (CPU, {}, "CPUs gain little"),
    "turing": (TURING, {}, "Triton does not support"),
    "split backward": (HOPPER, {"layout": ZBV}, "splits the backward pass"),
    "2bw": (HOPPER, {"layout": {"pipeline": 2, "schedule": "2bw"}}, "a schedule with delayed gradients"),
    "pipedream": (HOPPER, {"layout": {"pipeline": 2, "schedule": "pipedream"}}, "a schedule with delayed gradients"),
    "activations": (HOPPER, {"offload": {"activations": True}}, "offload.activations cannot move it"),
    "own module": (HOPPER, {"model": {"import": "mine:make"}}, "a module of your own"),
    "tensor": (HOPPER, {"layout": {"tensor": 2}}, "neither counted nor timed"),
    "context": (HOPPER, {"layout": {"context": 2}}, "neither counted nor timed"),
    "deterministic": (HOPPER, {"deterministic": True}, "rounded differently"),
    "fp64": (HOPPER, {"precision": "fp64"}, "for proofs"),
    "short": (HOPPER, {"steps": FEWEST_STEPS - 1}, f"fewer than {FEWEST_STEPS} steps"),
    "no compiler": (NO_COMPILER, {}, "this node has no C compiler."),
}


@pytest.mark.parametrize("train", COMPILED.values(), ids=COMPILED.keys())
def test_blocks_are_compiled_on_gpus_where_it_is_right(train: dict[str, Any]) -> None:
    for device in (GPU, HOPPER):
        found = on(device, **train)
        assert found.train.compile is True and found.reasons[-1] == "compile is true: GPUs gain from it."
        check_memory_options(found.train.layout, found.train.memory_options)


@pytest.mark.parametrize(("device", "train", "why"), NOT_COMPILED.values(), ids=NOT_COMPILED.keys())
def test_elsewhere_they_are_not_and_the_reason_is_given(device: DeviceFacts, train: dict[str, Any], why: str) -> None:
    found = on(device, **train)
    assert found.train.compile is False and found.train.memory_options.compile is False
    assert found.reasons[-1].startswith("compile is false: ") and why in found.reasons[-1]


@pytest.mark.parametrize("schedule", get_args(Schedule))
@pytest.mark.parametrize("device", [CPU, GPU, HOPPER, TURING], ids=lambda one: f"{one.kind}-{one.capability}")
def test_what_auto_decides_is_never_refused(schedule: str, device: DeviceFacts) -> None:
    given = spec(global_batch=16, layout={"pipeline": 2, "schedule": schedule})
    given.check()
    choices(given, DENSE, device).train.check()


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"documents": "packed"}},
        {"model": {"family": "moe"}},
        {"layout": {"context": 2}},
        {"layout": {"tensor": 2}},
    ],
    ids=str,
)
def test_auto_leaves_selective_recompute_uncompiled_where_it_would_be_refused(change: dict[str, Any]) -> None:
    given = spec(recompute="selective", **change)
    with pytest.raises(Refusal, match="between compiled parts"):
        spec(recompute="selective", compile=True, **change).check_compiled(given.facts())
    found = choices(given, given.facts(), HOPPER)
    assert found.train.compile is False
    found.train.check_compiled(given.facts())


def test_experts_are_not_compiled() -> None:
    found = choices(spec(), ModelFacts(4, 4, 4, 352, 8), HOPPER)
    assert found.train.compile is False and "an expert gets another number of tokens" in found.reasons[-1]


@pytest.mark.parametrize("layout", [{}, ZBV], ids=str)
def test_an_undecided_spec_passes_its_checks_and_keeps_auto(layout: dict[str, Any]) -> None:
    """`auto` is never what is refused: where compiling cannot work, it is off."""
    given = spec(layout=layout)
    given.check()
    job = JobSpec.model_validate({"name": "a", "train": {**LONG, "layout": layout}})
    stored = job.model_dump(mode="json", by_alias=True)["train"]
    assert (stored["precision"]["compute"], stored["compile"]) == ("auto", "auto")
    choices(given, DENSE, HOPPER)
    assert (given.precision.compute, given.compile) == ("auto", "auto")


def test_a_plan_takes_the_choices_of_its_device() -> None:
    auto, named = spec(steps=1), spec(steps=1, precision="bf16", compile=False)
    architecture = auto.architecture(256)
    assert architecture is not None
    assert plan(planned_setting(auto, architecture, "cuda")) == plan(planned_setting(named, architecture, "cuda"))
    on_cpus = planned_setting(spec(steps=1, precision="fp32", compile=False), architecture, "cpu")
    assert planned_setting(auto, architecture, "cpu") == on_cpus
    assert planned_setting(auto, architecture, "cuda", (7, 5)).precision == "fp32"


def test_compiled_blocks_are_planned_as_the_same_memory_and_the_plan_says_so() -> None:
    auto, off = spec(), spec(compile=False)
    architecture = auto.architecture(256)
    assert architecture is not None
    compiled, plain = (plan(planned_setting(one, architecture, "cuda")) for one in (auto, off))
    assert compiled.peak == plain.peak and "A compiled block keeps about as much" in " ".join(compiled.notes)


def test_what_the_trainers_reported_is_taken_for_auto_alone() -> None:
    reported = {"precision": "fp32", "compile": False}
    found = as_reported(spec(), reported)
    assert (found.precision.compute, found.compile) == ("fp32", False)
    named = spec(precision="bf16", compile=True)
    assert as_reported(named, reported) == named and as_reported(spec(), {}) == spec()


def test_a_dry_run_compiles_only_what_the_spec_names() -> None:
    assert uncompiled(spec()).compile is False and uncompiled(spec(compile=True)).compile is True


def test_a_change_of_precision_at_a_checkpoint_is_one_sentence() -> None:
    assert continues_in("fp32", "bf16") == "The checkpoint was computed in fp32, and this run continues in bf16."
