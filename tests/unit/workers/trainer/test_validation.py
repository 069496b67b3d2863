"""Which of a trainer's validations may take long: the first, for which a compiler works."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardyard.strategies.mesh import make_mesh
from shardyard.workers.messages.rank_status import QUICK
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.assemble import assemble
from shardyard.workers.trainer.build import allocate
from shardyard.workers.trainer.heartbeat import Heartbeat
from shardyard.workers.trainer.instruments import Instruments
from shardyard.workers.trainer.validation import evaluating

MODULE = """
from torch import nn


def make():
    return nn.Sequential(nn.Embedding(256, 8), nn.Linear(8, 256))
"""


class Merging(nn.Linear):
    """Adds an adapter to its weight while it is evaluated, as loralib's layers do."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.weight.data.fill_(0.5)
        self.merged = False

    def train(self, mode: bool = True) -> "Merging":
        super().train(mode)
        if self.merged == mode:
            self.weight.data += -1.0 if mode else 1.0
            self.merged = not mode
        return self


def test_a_module_undoes_what_it_does_for_an_evaluation_and_a_frozen_part_stays_in_its_mode() -> None:
    part = nn.Sequential(Merging(), nn.Dropout(), Merging())
    for frozen in part[1:]:
        frozen.eval()
    with evaluating([part]):
        assert [part[0].merged, part[2].merged, part.training] == [True, True, False]
    assert [part[0].merged, part[2].merged] == [False, True], "the other one was merged before"
    assert [part[0].weight[0, 0].item(), part[2].weight[0, 0].item()] == [0.5, 1.5]
    assert [module.training for module in part.modules()] == [True, True, False, False]


class OverFrozen(Merging):
    """Beside its adapter, an encoder that is never in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Dropout(), Merging())
        self.encoder.eval()


def test_a_module_with_a_frozen_part_undoes_what_it_does_for_an_evaluation_too() -> None:
    part = nn.Sequential(OverFrozen(), nn.Dropout())
    modes = {name: module.training for name, module in part.named_modules()}
    for at in range(2):
        with evaluating([part]):
            assert part[0].merged and part[0].weight[0, 0].item() == 1.5
        assert not part[0].merged and part[0].weight[0, 0].item() == 0.5, f"validation {at}"
        assert part[0].encoder[1].merged and part[0].encoder[1].weight[0, 0].item() == 1.5
        assert {name: module.training for name, module in part.named_modules()} == modes
    assert [name for name, training in modes.items() if not training] == ["0.encoder", "0.encoder.0", "0.encoder.1"]


class Fused(nn.Module):
    """Has another module in its place while it is evaluated, and keeps its encoder out of training."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Dropout()

    def train(self, mode: bool = True) -> "Fused":
        super().train(mode)
        self.fused = None if mode else nn.Linear(1, 1)
        self.encoder.eval()
        return self


def test_after_a_validation_each_module_is_in_the_mode_before_the_first_whatever_its_own_method_does() -> None:
    part, at = nn.Sequential(Fused(), nn.Dropout()), 0
    modes = [module.training for module in part.modules()]
    for at in range(2):
        with evaluating([part]):
            assert isinstance(part[0].fused, nn.Linear)
        assert part[0].fused is None
        assert [module.training for module in part.modules()] == modes == [True] * 4, f"validation {at}"


class OfItsParts(nn.Sequential):
    """Sets the mode of its parts alone."""

    def train(self, mode: bool = True) -> "OfItsParts":
        for part in self:
            part.train(mode)
        return self


def test_parts_of_a_module_that_leaves_its_own_mode_alone_train_again() -> None:
    part = OfItsParts(Merging())
    with evaluating([part]):
        assert part[0].merged
    assert not part[0].merged and part[0].training


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Recorded(Heartbeat):
    """Keeps its phases."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: list[tuple[int, str]] = []

    def update(self, phase: str, step: int) -> None:
        super().update(phase, step)
        self.phases.append((step, phase))


def test_a_rank_has_the_time_of_a_slow_phase_until_it_has_validated_a_batch(tmp_path: Path, alone: None) -> None:
    (tmp_path / "module_to_validate.py").write_text(MODULE)
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    data = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "seq_len": 16, "validation": 0.2}
    model = {"import": "module_to_validate:make", "code": str(tmp_path)}
    small = {"model": model, "data": data, "global_batch": 2, "checkpoint": {"final": False}}
    spec = TrainSpec.model_validate(small | {"steps": 2, "eval": {"every": 1, "batches": 2}})
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    heartbeat = Recorded()
    built = allocate(run, make_mesh(spec.layout, torch.device("cpu")))
    assemble(built, lambda *_: None, Instruments(heartbeat=heartbeat)).run()
    of_validations = [(step, phase) for step, phase in heartbeat.phases if phase.endswith("validation")]
    begins, first, *others = of_validations
    assert (begins, first) == ((1, "validation"), (1, "first validation")) and "first validation" not in QUICK
    assert {phase for _, phase in others} == {"validation"} and {step for step, _ in others} == {1, 2}
