"""Optimizer state is offloaded only to nodes that have the host memory for it, where that is known."""

import contextlib
from dataclasses import dataclass, replace

import pytest

from shardyard.strategies.advisor.hardware import Hardware
from shardyard.strategies.advisor.step_time import step_time
from shardyard.strategies.cost.node_room import CPU_RESERVED_BYTES
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.layout import Refusal
from shardyard.strategies.memory_options import Offload
from shardyard.workers.advisor import search
from shardyard.workers.advisor.known_hardware import Given, of_gpus
from shardyard.workers.advisor.search import Question, advise, candidates
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.models.presets import Architecture
from shardyard.workers.spec import TrainSpec

GIB = 2**30


def gpus(name: str, world: int, host_memory: int | None, per_node: int = 8) -> Hardware:
    model = gpu_named(name)
    assert model is not None
    return of_gpus(model, "bf16", world, Given(per_node=per_node, host_memory=host_memory))


def of(preset: str, batch: int, seq_len: int, **train: object) -> tuple[TrainSpec, Architecture]:
    fields = {"model": {"preset": preset, "vocab": 32000}, "data": {"seq_len": seq_len}, "precision": "bf16", **train}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": batch, **fields})
    architecture = spec.architecture(32000)
    assert architecture is not None
    return spec, architecture


def test_state_is_offloaded_to_nodes_that_have_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """7B on two A100s of 40 GB: the state takes 75 GiB of their node, and the ranks' processes some more."""
    spec, architecture = of("7B", 8, 2048)
    for memory in (None, 80 * GIB):
        found = advise(Question(spec, architecture, gpus("A100 40GB", 2, memory), 2, 1))
        assert found.offloaded and found.rows[0].verdict.fits and found.rows[0].verdict.host.needed > 37 * GIB
    planned = []
    monkeypatch.setattr(search, "plan", planned.append)
    found = advise(Question(spec, architecture, gpus("A100 40GB", 2, 70 * GIB), 2, 1))
    assert found.rows == () and found.too_large > 0 and 37 * GIB < found.least_on_host < 40 * GIB
    assert planned == [], "what the first rank has on the host is enough to drop a layout"


def test_each_node_has_host_memory_of_its_own() -> None:
    spec, architecture = of("7B", 8, 2048)
    apart = advise(Question(spec, architecture, gpus("A100 40GB", 2, 40 * GIB, per_node=1), 2, 1))
    assert apart.offloaded and apart.rows[0].verdict.host.ranks == 1


def test_layouts_that_offload_nothing_are_not_compared_with_host_memory() -> None:
    spec, architecture = of("124M", 8, 256)
    roomy, none = (advise(Question(spec, architecture, gpus("H100", 2, memory), 2)) for memory in (None, 1))
    assert none == roomy and not none.offloaded


@dataclass(frozen=True)
class Tried:
    """A layout that the rules allow: what its fullest rank has on the host, and its time."""

    needed: int
    seconds: float
    degrees: tuple[int, ...]


@pytest.fixture(scope="module")
def question() -> Question:
    """Of a model whose wide head leaves most blocks, and so activations, to ranks that are not the first."""
    model = {"preset": "nano", "layers": 8, "vocab": 60_000, "tied": False}
    spec, architecture = of("nano", 8, 64, model=model, layout={"auto": {}}, offload={"activations": True})
    return Question(spec, architecture, gpus("H100", 4, None, per_node=2), 4, 100)


@pytest.fixture(scope="module")
def tried(question: Question) -> list[Tried]:
    found = []
    for train in candidates(question, Offload(activations=True)):
        with contextlib.suppress(Refusal):
            setting, layout = question.setting(train), train.layout
            needed, seconds = plan(setting).host["activations"], step_time(setting, question.hardware).seconds
            found.append(Tried(needed, seconds, (layout.data, layout.tensor, layout.context, layout.pipeline)))
    return found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_it_finds_what_a_comparison_of_all_layouts_finds(question: Question, tried: list[Tried], share: float) -> None:
    memory = sorted(one.needed for one in tried)[int(share * len(tried))]
    wanted: dict[tuple[int, ...], float] = {}
    for one in tried:
        if one.needed <= memory:
            wanted[one.degrees] = min(one.seconds, wanted.get(one.degrees, one.seconds))
    hardware = replace(question.hardware, host_memory=2 * (memory + CPU_RESERVED_BYTES))
    found = advise(replace(question, hardware=hardware))
    assert [row.time.seconds for row in found.rows] == sorted(wanted.values())
    assert found.too_large > 0 and found.least_on_host > memory
