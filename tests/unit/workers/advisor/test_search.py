"""The search against a comparison of every layout, which shares no code with it; what must hold of its answers; published layouts."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.advisor.hardware import Hardware, Link
from shardyard.strategies.advisor.step_time import step_time
from shardyard.strategies.cost.node_room import GPU_RESERVED_BYTES
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.memory_options import Recompute
from shardyard.workers.advisor.known_hardware import Given, of_cpus, of_gpus
from shardyard.workers.advisor.search import Advice, Question, advise, candidates
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.models.presets import Architecture
from shardyard.workers.spec import TrainSpec

SCHEDULES = (
    *(("gpipe", 2), ("1f1b", 2), ("zb-h1", 2), ("zb-h2", 2), ("zbv", 2), ("dualpipev", 2)),
    *(("interleaved", 2), ("interleaved", 3), ("interleaved-zb", 2), ("interleaved-zb", 3)),
)
HARDWARE = Hardware(
    device="cuda",
    flops=1e12,
    memory=None,
    memory_bandwidth=1e11,
    host=1e10,
    ranks_per_node=2,
    intra=Link(1e10, 1e-5),
    inter=Link(1e9, 5e-5),
    block_s=1e-5,
    hidden=0.5,
)


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def small(model: dict[str, Any], **train: Any) -> tuple[TrainSpec, Architecture]:
    fields = {"model": {"preset": "nano", "vocab": 256, **model}, "data": {"seq_len": 64}, "precision": "bf16"}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": 8, **fields, **train})
    architecture = spec.architecture(256)
    assert architecture is not None
    return spec, architecture


@dataclass(frozen=True)
class Tried:
    """A layout that the rules allow: its time, and the bytes of its plan."""

    degrees: tuple[int, int, int, int]
    seconds: float
    needed: int
    train: TrainSpec


def every(train: TrainSpec, architecture: Architecture, world: int, hardware: Hardware) -> Iterator[Tried]:
    """All layouts of the world by their fields, with every recompute mode, as far as the rules allow them."""
    experts = divisors(architecture.experts or 1)
    for data, context, tensor, pipeline in product(divisors(world), repeat=4):
        if data * context * tensor * pipeline != world or train.global_batch % data:
            continue
        schedules = SCHEDULES if pipeline > 1 else SCHEDULES[1:2]
        shards: list[tuple[int, int | None]] = [(0, None), (1, None), (2, None), (3, None)]
        shards += [(3, shard) for shard in divisors(data * context) if 1 < shard < data * context]
        for (schedule, virtual), ulysses, expert, micro, (zero, shard), mode in product(
            schedules,
            divisors(context),
            experts,
            divisors(train.global_batch // data),
            shards,
            ("none", "selective", "full"),
        ):
            fields = {"data": data, "context": context, "tensor": tensor, "pipeline": pipeline, "ulysses": ulysses}
            fields |= {"expert": expert, "micro_batch": micro, "zero": zero}
            layout = Layout.model_validate({**fields, "schedule": schedule, "virtual": virtual, "shard": shard})
            changed = train.model_copy(update={"layout": layout, "recompute": Recompute.model_validate({"mode": mode})})
            try:
                setting = planned_setting(changed, architecture, "cuda")
            except Refusal:
                continue
            degrees = (pipeline, data, context, tensor)
            seconds = step_time(setting, hardware).seconds
            yield Tried(degrees, seconds, plan(setting).peak + GPU_RESERVED_BYTES, changed)


def fastest(tried: list[Tried], memory: int) -> dict[tuple[int, int, int, int], float]:
    """Degrees → the seconds of the fastest layout that fits."""
    found: dict[tuple[int, int, int, int], float] = {}
    for one in tried:
        if one.needed <= memory:
            found[one.degrees] = min(one.seconds, found.get(one.degrees, one.seconds))
    return found


def shown(advice: Advice) -> dict[tuple[int, int, int, int], float]:
    return {
        (row.train.layout.pipeline, row.train.layout.data, row.train.layout.context, row.train.layout.tensor): (
            row.time.seconds
        )
        for row in advice.rows
    }


def compare(question: Question, tried: list[Tried], share: float) -> None:
    """Compare the search with all layouts, where `share` of them fit."""
    if not tried:  # as of three ranks, one block and four sequences
        assert advise(question).rows == ()
        return
    needs = sorted(one.needed for one in tried)
    memory = needs[min(len(needs) - 1, int(share * len(needs)))]
    wanted = sorted(fastest(tried, memory).items(), key=lambda one: one[1])
    found = advise(replace(question, hardware=replace(question.hardware, memory=memory)))
    assert [row.time.seconds for row in found.rows] == [seconds for _, seconds in wanted[: question.top]]
    assert shown(found).items() <= dict(wanted).items() and not found.offloaded
    assert all(row.verdict.needed <= memory for row in found.rows)
    assert found.slower + found.too_large + sum(found.refused.values()) + len(found.rows) <= found.candidates


@pytest.fixture(scope="module")
def question() -> Question:
    return Question(*small({"layers": 4, "heads": 4, "kv_heads": 2}), HARDWARE, 4, 3)


@pytest.fixture(scope="module")
def tried(question: Question) -> list[Tried]:
    return list(every(question.train, question.architecture, 4, HARDWARE))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_it_finds_what_a_comparison_of_all_layouts_finds(question: Question, tried: list[Tried], share: float) -> None:
    compare(question, tried, share)


@pytest.mark.parametrize(
    ("fixed", "recompute"),
    [
        ({"zero": 3}, None),
        ({"zero": 3, "shard": 2}, "full"),
        ({"tensor": 2, "zero": 1}, None),
        ({"pipeline": 2, "schedule": "zbv"}, "none"),
        ({"data": 2, "micro_batch": 2}, "selective"),
        ({"schedule": "interleaved", "virtual": 2}, None),
        ({}, "full"),
        ({}, None),
    ],
)
def test_what_a_spec_with_an_open_layout_fixes_is_all_that_is_searched(
    question: Question, tried: list[Tried], fixed: dict[str, Any], recompute: str | None
) -> None:
    """Tensor groups are within nodes of two ranks."""
    more = {} if recompute is None else {"recompute": recompute}
    spec, _ = small({"layers": 4, "heads": 4, "kv_heads": 2}, layout={"auto": {}, **fixed}, **more)
    found = advise(replace(question, train=spec, top=100))
    having = [
        one
        for one in tried
        if all(getattr(one.train.layout, name) == value for name, value in fixed.items())
        and recompute in (None, one.train.recompute.mode)
        and one.train.layout.tensor <= HARDWARE.ranks_per_node
    ]
    assert having and shown(found) == fastest(having, 10**18)
    assert {row.train.layout.auto for row in found.rows} == {None}


def test_what_tensor_ranks_sum_follows_the_zero_stage() -> None:
    """The most frugal layout has ZeRO-3 and tensor ranks, on links that are slow enough to show its messages."""
    slow = Link(1e8, 5e-5)
    hardware = replace(HARDWARE, flops=1e10, intra=slow, inter=slow, ranks_per_node=1, hidden=0.0, cores=1.0)
    spec, architecture = small({"layers": 5}, global_batch=4)
    compare(Question(spec, architecture, hardware, 4, 1), list(every(spec, architecture, 4, hardware)), 0.0)


@pytest.mark.full
@settings(max_examples=15, deadline=None)
@given(
    world=st.sampled_from([1, 2, 3, 4, 6]),
    layers=st.integers(1, 7),
    family=st.sampled_from(["llama", "gpt2", "moe"]),
    batch=st.sampled_from([4, 6]),
    flops=st.sampled_from([1e10, 1e12, 1e14]),
    intra=st.sampled_from([1e8, 1e10, 1e12]),
    slower=st.sampled_from([1.0, 0.1, 0.001]),
    per_node=st.sampled_from([1, 2, 4, 8]),
    hidden=st.sampled_from([0.0, 0.5, 1.0]),
    cores=st.sampled_from([1.0, 0.5]),
    share=st.floats(0, 1),
    top=st.sampled_from([1, 3, 100]),
)
def test_it_does_so_for_drawn_models_and_hardware(
    *,
    world: int,
    layers: int,
    family: str,
    batch: int,
    flops: float,
    intra: float,
    slower: float,
    per_node: int,
    hidden: float,
    cores: float,
    share: float,
    top: int,
) -> None:
    hardware = replace(
        HARDWARE,
        flops=flops,
        intra=Link(intra, 1e-5),
        inter=Link(intra * slower, 5e-5),
        ranks_per_node=min(per_node, world),
        hidden=hidden,
        cores=cores,
    )
    spec, architecture = small({"family": family, "layers": layers}, global_batch=batch)
    compare(Question(spec, architecture, hardware, world, top), list(every(spec, architecture, world, hardware)), share)


def test_candidates_are_more_than_what_is_shown(question: Question) -> None:
    question = replace(question, top=2)
    found = advise(question)
    assert len(list(candidates(question))) == found.candidates > 500
    assert len(found.rows) == 2 and found.slower > found.candidates / 2


def gpus(name: str, world: int, given: Given | None = None) -> Hardware:
    model = gpu_named(name)
    assert model is not None
    return of_gpus(model, "bf16", world, given or Given())


def published(preset: str, batch: int, seq_len: int, **model: Any) -> tuple[TrainSpec, Architecture]:
    fields = {"model": {"preset": preset, **model}, "data": {"seq_len": seq_len}, "precision": "bf16"}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": batch, **fields})
    architecture = spec.architecture(model.get("vocab", 32000))
    assert architecture is not None
    return spec, architecture


def test_more_memory_never_gives_a_slower_pick() -> None:
    spec, architecture = published("7B", 64, 4096, vocab=32000)
    hardware = gpus("H100", 8)
    found = [
        advise(Question(spec, architecture, replace(hardware, memory=gib * 2**30), 8, 1))
        for gib in (32, 48, 80, 141, 288)
    ]
    assert not any(one.offloaded for one in found)
    seconds = [one.rows[0].time.seconds for one in found]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]


def test_a_slower_network_never_moves_tensor_parallelism_across_nodes() -> None:
    """Nor does any answer become faster by it."""
    spec, architecture = published("7B", 32, 4096, vocab=32000)
    across, seconds = [], []
    for gbps in (3600, 800, 200, 50, 10):
        hardware = gpus("H100", 8, Given(inter_gbps=gbps, per_node=2))
        row = advise(Question(spec, architecture, hardware, 8, 1)).rows[0]
        across.append(row.train.layout.tensor > 2)
        seconds.append(row.time.seconds)
    assert across == sorted(across, reverse=True)
    assert seconds == sorted(seconds)


def test_nothing_that_fits_is_said_with_what_is_needed() -> None:
    spec, architecture = published("70B", 8, 4096, vocab=32000)
    found = advise(Question(spec, architecture, gpus("T4", 2), 2))
    assert found.rows == () and found.offloaded
    assert found.too_large > 0 and 16 * 2**30 < found.least_needed < 2**40


def test_offload_is_for_what_fits_only_with_it() -> None:
    spec, architecture = published("7B", 8, 2048, vocab=32000)
    hardware = gpus("A100 40GB", 2)
    found = advise(Question(spec, architecture, hardware, 2, 1))
    assert found.offloaded and found.rows[0].train.offload.optimizer == 1
    assert not advise(Question(spec, architecture, gpus("A100 40GB", 8), 8, 1)).offloaded


def test_offload_that_the_spec_names_is_not_what_alone_fits() -> None:
    spec, architecture = small({"preset": "124M"}, offload={"optimizer": 0.5}, layout={"auto": {"world": 4}})
    found = advise(Question(spec, architecture, gpus("H100", 4), 4))
    assert found.rows and not found.offloaded


def test_ranks_on_cpus_share_the_memory_of_their_node() -> None:
    spec, architecture = small({"preset": "124M"}, precision="fp32")
    roomy = of_cpus(2, 64 * 2**30, 4, Given())
    assert advise(Question(spec, architecture, roomy, 4, 1)).rows[0].verdict.shared
    few = advise(Question(spec, architecture, replace(roomy, memory=2**30), 4, 1))
    assert few.rows == () and few.too_large > 0


def test_a_spec_that_no_layout_can_run_is_refused() -> None:
    spec, architecture = small({}, loss={"chunk_tokens": 8}, checkpoint={"export": True, "final": False})
    with pytest.raises(Refusal, match=r"checkpoint\.export"):
        advise(Question(spec, architecture, HARDWARE, 2))


# Megatron's runs on A100s (2104.04473, table 1): heads, width, layers; t, p, GPUs, sequences; TFLOP/s per GPU.
MEGATRON = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (32, 3072, 30, 2, 1, 64, 512, 138),
    (32, 4096, 36, 4, 1, 128, 512, 142),
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
]


def megatron(heads: int, width: int, layers: int, batch: int, **train: Any) -> tuple[TrainSpec, Architecture]:
    sizes = {"heads": heads, "kv_heads": heads, "dim": width, "layers": layers, "hidden": 4 * width, "vocab": 51200}
    model = {"family": "gpt2", "preset": "1.3B", **sizes}
    fields = {"model": model, "data": {"seq_len": 2048}, "precision": "bf16", "recompute": "full"}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": batch, **fields, **train})
    architecture = spec.architecture(51200)
    assert architecture is not None
    return spec, architecture


@pytest.mark.parametrize(("heads", "width", "layers", "t", "p", "world", "batch", "tflops"), MEGATRON)
def test_published_runs_took_about_as_long(
    heads: int, width: int, layers: int, t: int, p: int, world: int, batch: int, tflops: int
) -> None:
    """The paper's FLOPs over our time, within a fifth of what it measured."""
    layout = {"tensor": t, "pipeline": p, "data": world // t // p, "micro_batch": 1, "sequence": False}
    if p > 1:
        layout |= {"schedule": "interleaved", "virtual": 2}
    spec, architecture = megatron(heads, width, layers, batch, layout=layout)
    setting = planned_setting(spec, architecture, "cuda")
    hardware = gpus("A100 80GB", world, Given(inter_gbps=200))
    flops = 96 * batch * 2048 * layers * width**2 * (1 + 2048 / (6 * width) + 51200 / (16 * layers * width))
    assert flops / world / step_time(setting, hardware).seconds / 1e12 == pytest.approx(tflops, rel=0.2)


@pytest.mark.parametrize("row", [0, *(pytest.param(row, marks=pytest.mark.full) for row in (1, 2))])
def test_published_degrees_are_near_the_pick(row: int) -> None:
    """In the first fifth of all degrees, and no more than an eighth slower than the pick."""
    heads, width, layers, t, p, world, batch, _ = MEGATRON[row]
    spec, architecture = megatron(heads, width, layers, batch)
    found = advise(Question(spec, architecture, gpus("A100 80GB", world, Given(inter_gbps=200)), world, 10**6))
    degrees = [(one.train.layout.tensor, one.train.layout.pipeline, one.train.layout.context) for one in found.rows]
    place = degrees.index((t, p, 1))
    assert place < len(degrees) / 5
    assert found.rows[place].time.seconds <= 1.125 * found.rows[0].time.seconds


@pytest.mark.timing
def test_512_ranks_take_a_tenth_of_looking_at_each_candidate() -> None:
    """Of a million candidates a part is timed and planned one by one, in the same process and so at the same pace."""
    spec, architecture = published("70B", 1024, 8192, vocab=128_256)
    question = Question(spec, architecture, gpus("H100", 512), 512)
    began = time.process_time()
    found = advise(question)
    search_s = time.process_time() - began
    assert len(found.rows) == 10 and found.candidates > 900_000
    legal = []
    for train in islice(candidates(question), 0, 20_000, 50):
        with contextlib.suppress(Refusal):
            question.setting(train)
            legal.append(train)
    began = time.process_time()
    for train in legal:
        setting = question.setting(train)
        assert step_time(setting, question.hardware).seconds and plan(setting).peak
    each_s = (time.process_time() - began) / len(legal)
    print(f"{search_s:.1f} s of processor time, {each_s * found.candidates / search_s:.0f} times as much one by one")
    assert search_s < each_s * found.candidates / 10
