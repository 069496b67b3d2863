"""The memory plan against dry runs: no peak is above its plan by more than 5%, and no plan above its peak by more than a quarter.

The changes that make specs fit which cannot, and a few of these specs, are confirmed by dry runs at their full size.
"""

from typing import Any

import pytest
from harness.dry_layouts import ALL
from harness.dry_run import SPEC, DryRunner
from harness.layouts import CUBE, DEEP, GRID, SMALLER
from harness.unfit_specs import UNFIT

from shardyard.strategies.cost.node_room import GPU_RESERVED_BYTES, Cluster, Room, Verdict, verdict
from shardyard.strategies.cost.plan import plan
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.dry_run.processes import representatives
from shardyard.workers.fitting_changes import smallest_change
from shardyard.workers.gpu_models import GpuModel, gpu_named
from shardyard.workers.spec import TrainSpec, facts_of

LLAMA = {"dim": 1024, "heads": 8, "kv_heads": 2, "hidden": 3584, "layers": 4, "vocab": 8192}
GPT2 = {"family": "gpt2", "dim": 1024, "heads": 8, "hidden": 4096, "layers": 4, "vocab": 8192}
QWEN3 = {**LLAMA, "preset": "qwen3-nano"}
MIXTURE = {**LLAMA, "family": "moe", "hidden": 1024, "experts": 4, "top_k": 2}
#: Its blocks in the forward pass decide, gathered ahead.
AHEAD = {**MIXTURE, "layers": 8, "vocab": 512}
SHARED = {**MIXTURE, "shared_experts": 3, "balance": "bias"}
NARROW = {"compute": "bf16", "gradients": "compute"}
PACKED = {"seq_len": 1024, "documents": "packed"}
#: Its table is most of it, and so few tokens that parameters and gradients decide.
TIED = {**LLAMA, "layers": 2, "vocab": 32768, "tied": True}
SHORT = {"data": {"seq_len": 128}, "recompute": "full"}

Case = tuple[dict[str, Any], dict[str, Any]]
CORE: list[Case] = [
    ({"data": 4}, {"model": TIED, **SHORT}),
    ({}, {"model": {**LLAMA, "vocab": 300}, "recompute": "selective"}),  # a SwiGLU sets the peak, and not the logits
    ({"data": 4, "zero": 1}, {}),
    ({"data": 4, "zero": 3, "micro_batch": 1}, {"recompute": "full"}),
]
FULL: list[Case] = [
    ({"data": 8, "expert": 2, "zero": 3, "micro_batch": 1}, {"model": AHEAD, "overlap": {"prefetch": 7}, **SHORT}),
    ({"data": 4, "zero": 1}, {"offload": {"optimizer": 1, "activations": True}, "model": {**LLAMA, "layers": 8}}),
    ({"pipeline": 2, "micro_batch": 1}, {}),
    ({"tensor": 2, "data": 2, "zero": 2}, {"recompute": "selective"}),
    ({}, {}),
    ({"data": 4}, {"precision": NARROW}),
    ({"data": 4}, {"precision": "fp32"}),
    ({"data": 4}, {"model": GPT2}),
    ({"data": 4, "zero": 1}, {"recompute": "full"}),
    ({"data": 4, "zero": 1}, {"recompute": "selective"}),
    ({"data": 4, "zero": 1, "micro_batch": 1}, {"precision": NARROW}),
    ({"data": 4, "zero": 2}, {}),
    ({"data": 4, "zero": 2, "micro_batch": 1}, {}),
    ({"data": 4, "zero": 3}, {}),
    ({"data": 4, "zero": 3, "micro_batch": 1}, {}),
    ({"data": 4, "zero": 3, "micro_batch": 1, "zero_plus_plus": {"secondary": 2}}, {}),
    ({"data": 4, "zero": 3, "micro_batch": 1, "zero_plus_plus": SMALLER}, {"recompute": "full"}),
    ({"data": 4, "zero": 2, "micro_batch": 1, "zero_plus_plus": {"gradients": "int8"}}, {}),
    ({"data": 4, "zero": 1}, {"offload": {"optimizer": 1}}),
    ({"data": 4, "zero": 1}, {"offload": {"activations": True}, "recompute": "full"}),
    ({"data": 4, "zero": 3, "micro_batch": 1}, {"offload": {"parameters": True}}),
    (
        {"data": 8, "zero": 3, "micro_batch": 1},
        {"model": {**LLAMA, "layers": 12}, "overlap": {"prefetch": 8}, **SHORT},
    ),
    ({"data": 8, "zero": 3, "micro_batch": 1}, {"model": {**LLAMA, "layers": 12}, "overlap": {"prefetch": 8}}),
    ({"data": 4, "zero": 3, "micro_batch": 1}, {"offload": {"activations": True}, "model": {**LLAMA, "layers": 8}}),
    (
        {"pipeline": 2, "micro_batch": 1},
        {"offload": {"activations": True}, "model": {**LLAMA, "layers": 8}, "global_batch": 4},
    ),
    (
        {"pipeline": 2, "schedule": "interleaved", "micro_batch": 1},
        {"offload": {"activations": True}, "model": {**LLAMA, "layers": 8}, "global_batch": 8},
    ),
    (
        {"pipeline": 2, "schedule": "gpipe", "data": 4, "zero": 3},
        {
            "offload": {"activations": True},
            "precision": "fp16",
            "data": {"seq_len": 144},
            "global_batch": 48,
            "model": {**GPT2, "dim": 256, "hidden": 352, "layers": 3, "vocab": 300},
        },
    ),
    ({"data": 4, "zero": 1}, {"model": TIED, **SHORT}),
    ({"data": 4, "zero": 2, "micro_batch": 1}, {"model": TIED, "precision": NARROW, **SHORT}),
    ({"data": 4, "zero": 3}, {"model": TIED, "precision": "fp32", **SHORT}),
    ({"tensor": GRID}, {"model": TIED, **SHORT}),
    ({"tensor": CUBE, "micro_batch": 4}, {"model": TIED, **SHORT}),
    ({"tensor": DEEP, "micro_batch": 4}, {"model": {**TIED, "tied": False}, **SHORT}),
    ({"pipeline": 2, "micro_batch": 1}, {"model": TIED, "global_batch": 4, **SHORT}),
    ({"data": 4, "zero": 3}, {"model": {**TIED, "tied": False}, "precision": "fp32", **SHORT}),
    ({"data": 4, "zero": 3, "zero_plus_plus": {"gradients": "int8"}}, {"model": {**TIED, "tied": False}, **SHORT}),
    ({"data": 4, "zero": 3, "zero_plus_plus": {"weights": "int8"}}, {"model": {**TIED, "tied": False}, **SHORT}),
    ({"data": 8, "expert": 2, "zero": 3, "shard": 2, "micro_batch": 1}, {"model": MIXTURE, **SHORT}),
    ({"tensor": 2}, {}),
    ({"tensor": 2, "sequence": False}, {}),
    ({"tensor": 2}, {"overlap": {"tensor_chunks": 4}}),
    ({"tensor": 2}, {"overlap": {"tensor_chunks": 4}, "recompute": "full", "model": {**LLAMA, "vocab": 300}}),
    ({"tensor": 2}, {"overlap": {"tensor_chunks": 4}, "recompute": "selective", "model": {**LLAMA, "vocab": 300}}),
    ({"tensor": GRID}, {}),
    ({"tensor": GRID, "pipeline": 2, "micro_batch": 2}, {}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "gpipe", "micro_batch": 2}, {"recompute": "full"}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zb-h2", "micro_batch": 2}, {}),
    ({"tensor": GRID, "pipeline": 2, "schedule": "zbv", "micro_batch": 2}, {}),
    ({"tensor": GRID, "data": 2, "zero": 1}, {"recompute": "full"}),
    ({"tensor": DEEP}, {}),
    ({"tensor": CUBE}, {}),
    ({"tensor": CUBE}, {"recompute": "full"}),
    ({"tensor": CUBE, "pipeline": 2, "micro_batch": 4}, {}),
    ({"tensor": DEEP, "zero": 1}, {"recompute": "full"}),
    ({"tensor": 2, "data": 2, "zero": 1}, {"recompute": "full"}),
    ({"tensor": 2, "data": 2, "zero": 3}, {}),
    ({"context": 2}, {}),
    ({"context": 2, "ulysses": 2, "zero": 1}, {}),
    ({"context": 4, "ulysses": 4}, {}),
    ({"context": 4, "context_method": "all-gather"}, {}),
    ({"context": 4, "ring_window": 2}, {}),
    ({"context": 4, "context_method": "ring-self-attention"}, {}),
    ({"context": 4, "context_method": "ring-self-attention"}, {"recompute": "full"}),
    ({"context": 2, "data": 2, "zero": 3}, {"recompute": "full"}),
    ({"context": 4}, {"recompute": "selective"}),
    ({"context": 4, "ring_window": 2}, {"recompute": "selective"}),
    ({"context": 4, "context_method": "all-gather"}, {"recompute": "selective"}),
    ({}, {"model": QWEN3}),
    ({"tensor": 2}, {"model": QWEN3, "recompute": "selective"}),
    ({"pipeline": 2, "schedule": "zbv", "micro_batch": 1}, {"model": QWEN3}),
    ({"pipeline": 2, "schedule": "gpipe", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "interleaved", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "zbv", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "interleaved-zb", "micro_batch": 1}, {}),
    (
        {"pipeline": 4, "schedule": "zbv", "micro_batch": 1},
        {"model": {**LLAMA, "layers": 8}, "global_batch": 4},
    ),  # fewer than fill it
    (
        {"pipeline": 4, "schedule": "interleaved-zb", "micro_batch": 1},
        {"model": {**LLAMA, "layers": 8}, "global_batch": 7},
    ),  # no multiple of the ranks
    (
        {"pipeline": {"stages": 2, "blocks": [4, 1, 1, 2]}, "schedule": "zbv", "micro_batch": 1},
        {"model": {**LLAMA, "layers": 8}},
    ),
    (
        {"pipeline": {"stages": 2, "blocks": [1, 3, 2, 2]}, "schedule": "interleaved", "micro_batch": 1},
        {"model": {**LLAMA, "layers": 8}},
    ),
    ({"pipeline": 2, "schedule": "dualpipev", "micro_batch": 1}, {}),
    ({"pipeline": 4, "schedule": "zb-h1", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "zb-h1", "micro_batch": 1}, {"precision": NARROW}),
    ({"pipeline": 2, "schedule": "zb-h2", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "zb-h1", "micro_batch": 1}, {"recompute": "full"}),
    (
        {"pipeline": 2, "schedule": "zb-h2", "micro_batch": 1},
        {"recompute": "selective", "model": {**LLAMA, "layers": 8}},
    ),
    ({"pipeline": 2, "schedule": "zb-h2", "tensor": 2, "data": 2, "zero": 1, "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "2bw", "micro_batch": 1}, {}),
    ({"pipeline": 2, "schedule": "2bw", "data": 2, "micro_batch": 1}, {"precision": NARROW}),
    ({"pipeline": 4, "schedule": "2bw", "micro_batch": 1}, {"optimizer": {"clip_norm": None}}),
    ({"pipeline": 2, "schedule": "pipedream"}, {}),
    ({"pipeline": 2, "schedule": "pipedream", "vertical_sync": True}, {}),
    ({"pipeline": 2, "data": 2, "zero": 1, "tensor": 2, "micro_batch": 1}, {}),
    ({"pipeline": 2, "data": 2, "zero": 1, "micro_batch": 1}, {"precision": NARROW}),
    ({"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 2, "micro_batch": 1}, {"recompute": "full"}),
    ({"pipeline": 2, "data": 2, "zero": 3, "micro_batch": 1}, {"recompute": "full"}),
    ({"pipeline": 2, "data": 2, "zero": 3, "micro_batch": 1}, {"recompute": "full", "model": {**LLAMA, "layers": 12}}),
    ({"tensor": 2}, {"recompute": "selective", "model": {**GPT2, "layers": 8}}),
    ({"data": 4}, {"data": PACKED}),
    ({"data": 4, "zero": 1}, {"data": PACKED, "recompute": "selective"}),
    ({"context": 2}, {"data": PACKED}),
    ({"context": 4, "context_method": "all-gather"}, {"data": PACKED}),
    ({"data": 4}, {"model": MIXTURE}),
    ({"data": 4, "expert": 4, "zero": 1}, {"model": MIXTURE, "recompute": "full"}),
    ({"data": 2, "expert": 2}, {"model": {**MIXTURE, "capacity_factor": 2.0}}),
    ({"data": 2, "expert": 2}, {"model": {**SHARED, "capacity_factor": 1.25}, "recompute": "selective"}),
    ({"data": 4, "zero": 1}, {"model": SHARED}),
    ({"data": 8, "zero": 1}, {"model": MIXTURE}),  # fewer experts than ranks that share their state
    ({"data": 8, "zero": 2, "micro_batch": 1}, {"model": MIXTURE}),
    ({"data": 8, "expert": 4, "zero": 1}, {"model": MIXTURE}),
    ({"data": 8, "expert": 2, "zero": 3}, {"model": MIXTURE}),
    ({"tensor": 2, "data": 2, "zero": 1}, {"model": SHARED, "recompute": "selective"}),
]
#: Of the specs that cannot fit, those that are themselves small enough for a dry run in seconds.
BOTH_WAYS = ("8B-replicas", "8B-zero1", "7B-l40s", "124M-batch")
CASES = [*CORE, *(pytest.param(*case, marks=pytest.mark.full) for case in FULL)]


def train_of(layout: dict[str, Any], changes: dict[str, Any]) -> TrainSpec:
    return TrainSpec.model_validate({**SPEC, "layout": layout, **changes})


def planned(train: TrainSpec) -> int:
    architecture = train.architecture(256)
    assert architecture is not None
    return plan(planned_setting(train, architecture, "cuda")).peak


def peak(dry: DryRunner, layout: dict[str, Any], whole: bool = True, ends: bool = False, **changes: Any) -> int:
    """The step's peak of the fullest rank, of all places of a pipeline or its `ends`. (The peak of building is not planned.)"""
    ranks = representatives(train_of(layout, changes).layout)
    if ends:
        ranks = tuple(dict.fromkeys((ranks[0], ranks[-1])))
    reports = [dry.report(layout, rank, whole=whole, **changes) for rank in ranks]
    return max(phase.bytes for one in reports for phase in one.phases if phase.phase not in ("build", "validation"))


@pytest.mark.parametrize(("layout", "changes"), CASES, ids=str)
def test_a_plan_is_near_the_peak(layout: dict[str, Any], changes: dict[str, Any], dry: DryRunner) -> None:
    more = {"model": LLAMA, "data": {"seq_len": 1024}, "global_batch": 16, **changes}
    found, expected = peak(dry, layout, **more), planned(train_of(layout, more))
    assert found <= 1.05 * expected
    assert expected <= 1.25 * found


@pytest.mark.parametrize("gpu", ["T4", "H100"])
def test_a_plan_knows_the_attention_kernel_of_a_gpu(gpu: str, dry: DryRunner) -> None:
    """Without flash attention key/value heads are repeated, and no scores are kept."""
    more = {"model": {**LLAMA, "layers": 2}, "data": {"seq_len": 1024}, "global_batch": 4, "precision": "fp16"}
    near_on(gpu, {}, more, dry)


@pytest.mark.parametrize("gpu", ["H100", "B200", "MI300X"])
def test_a_plan_knows_how_a_gpu_multiplies_experts(gpu: str, dry: DryRunner) -> None:
    """Selective recompute keeps what a loop over the experts multiplied, and nothing of a grouped product."""
    model = {**MIXTURE, "hidden": 3584}
    more = {"model": model, "data": {"seq_len": 1024}, "global_batch": 16, "recompute": "selective"}
    near_on(gpu, {"data": 4, "zero": 1}, more, dry)


def near_on(gpu: str, layout: dict[str, Any], more: dict[str, Any], dry: DryRunner) -> None:
    train, model = train_of(layout, more), gpu_named(gpu)
    architecture = train.architecture(256)
    assert architecture is not None and model is not None
    expected = plan(planned_setting(train, architecture, "cuda", model.capability)).peak
    phases = dry.report(layout, whole=True, on=gpu, **more).phases
    found = max(phase.bytes for phase in phases if phase.phase not in ("build", "validation"))
    assert found <= 1.05 * expected
    assert expected <= 1.25 * found


def widened(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A layout of the parity list, and the changes that give it the wide model."""
    layout, changes = ALL[name]
    more = {"model": LLAMA, "global_batch": 12 if layout.get("data") == 3 else 16, **changes}
    if "model" in changes:
        wide = SHARED if "shared_experts" in changes["model"] else MIXTURE
        more["model"] = {**wide, "capacity_factor": 1.25}
    return layout, {**more, "data": {**changes.get("data", {}), "seq_len": 1024}}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ALL)
def test_no_layout_of_the_parity_list_peaks_above_its_plan(name: str, dry: DryRunner) -> None:
    layout, more = widened(name)
    assert peak(dry, layout, **more) <= 1.05 * planned(train_of(layout, more))


def changed(name: str) -> tuple[GpuModel, TrainSpec, TrainSpec]:
    """The GPU of a spec that cannot fit, the spec, and it with the change that is offered."""
    unfit = UNFIT[name]
    gpu, train = gpu_named(unfit.gpu), TrainSpec.model_validate(unfit.train)
    architecture = train.architecture(256)
    assert gpu is not None and architecture is not None

    def judge(one: TrainSpec) -> Verdict:
        found = plan(planned_setting(one, architecture, "cuda"))
        return verdict(found, "cuda", one.layout.world_size, [Cluster([Room(10**9, gpu.memory_bytes)])])

    change = smallest_change(train, facts_of(architecture), judge, 10**9)
    assert change is not None and change.fits
    return gpu, train, change.train


def needed(dry: DryRunner, train: TrainSpec, ends: bool) -> int:
    """What a dry run says that a rank needs."""
    given = train.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return peak(dry, given.pop("layout"), whole=False, ends=ends, **given) + GPU_RESERVED_BYTES


@pytest.mark.full
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_dry_run_says_that_it_does_not_fit_and_that_the_change_does(name: str, dry: DryRunner) -> None:
    gpu, train, change = changed(name)
    assert needed(dry, change, ends=False) <= gpu.memory_bytes < needed(dry, train, ends=False)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in UNFIT if name not in BOTH_WAYS])
def test_the_change_that_is_offered_fits_by_a_dry_run(name: str, dry: DryRunner) -> None:
    gpu, _, change = changed(name)
    assert needed(dry, change, ends=True) <= gpu.memory_bytes
