"""Words and objects that a spec may give, and what does not go together: refused with a remedy that works."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Refusal
from shardyard.strategies.memory_options import SPLIT_BACKWARD
from shardyard.workers.spec import TrainSpec


def _spec(**changes: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 1, "global_batch": 16, **changes})


def _check(**changes: Any) -> None:
    """As a submission does."""
    spec = _spec(**changes)
    spec.check_compiled(spec.facts())
    spec.check()


@pytest.mark.parametrize(
    ("given", "mode", "every"),
    [
        ("none", "none", 1),
        ("full", "full", 1),
        ("selective", "selective", 1),
        ("every-3", "full", 3),
        ({"mode": "selective", "every": 2}, "selective", 2),
    ],
)
def test_recompute_reads_words_and_objects(given: Any, mode: str, every: int) -> None:
    recompute = _spec(recompute=given).recompute
    assert (recompute.mode, recompute.every) == (mode, every)


@pytest.mark.parametrize("given", ["some", "every-", "every-0", "every-x", {"mode": "full", "every": 0}, 3])
def test_recompute_refuses_other_words(given: Any) -> None:
    with pytest.raises(ValidationError):
        _spec(recompute=given)


def test_a_spec_reads_back_what_it_writes() -> None:
    spec = _spec(recompute="every-2", offload={"optimizer": 0.5}, loss={"z_loss": 1e-4}, compile=True)
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec


ZBV = {"pipeline": 2, "schedule": "zbv"}
PROFILED = {"pipeline": {"stages": 2, "split": "profile"}}
ZB_H1 = {"pipeline": 2, "schedule": "zb-h1"}
PAIRS = {"pipeline": 2, "schedule": "dualpipev", "data": 2, "expert": 2}
#: Where a compiled block is no single graph.
IN_PARTS: list[dict[str, Any]] = [
    {"data": {"documents": "packed"}},
    {"model": {"family": "moe"}},
    {"layout": {"context": 4, "ulysses": 2}},
    {"layout": {"context": 2, "context_method": "all-gather"}},
    {"layout": {"tensor": 2}},
]
HALF_OF_TIED: dict[str, Any] = {"offload": {"optimizer": 0.5}, "model": {"tied": True}, "layout": {"pipeline": 2}}


@pytest.mark.parametrize(
    ("changes", "field", "remedy", "corrected"),
    [
        ({"precision": "fp8", "layout": {"tensor": 2}}, "layout.tensor", "to 1", {"layout": {}}),
        ({"precision": "fp8", "layout": {"context": 2}}, "layout.context", "to 1", {"layout": {}}),
        ({"precision": "fp8", "layout": {"context": 2}}, "layout.context", "bf16", {"precision": "bf16"}),
        ({"precision": "fp8", "model": {"family": "moe"}}, "precision", "bf16", {"precision": "bf16"}),
        (
            {"precision": "fp8", "model": {"dim": 24, "heads": 4}},
            "precision",
            "multiple of 16 as model.dim",
            {"model": {"dim": 32, "heads": 4}},
        ),
        (
            {"precision": "fp8", "data": {"seq_len": 100}, "layout": {"micro_batch": 2}},
            "data.seq_len",
            "112",
            {"data": {"seq_len": 112}},
        ),
        ({"compile": True, "recompute": "selective", "layout": ZBV}, "compile", "compile to false", {"compile": False}),
        (
            {"compile": True, "recompute": "selective", "layout": ZB_H1},
            "compile",
            "recompute to full",
            {"recompute": "full"},
        ),
        *(
            ({"compile": True, "recompute": "selective", **broken}, "compile", remedy, corrected)
            for broken in IN_PARTS
            for remedy, corrected in (("compile to false", {"compile": False}), ("to full", {"recompute": "full"}))
        ),
        (
            {"compile": True, "model": {"family": "moe"}, "layout": PAIRS},
            "compile",
            "layout.schedule to zbv",
            {"layout": {**PAIRS, "schedule": "zbv"}},
        ),
        (
            {"compile": True, "offload": {"activations": True}},
            "compile",
            "activations to false",
            {"offload": {"activations": False}},
        ),
        (
            {"recompute": "selective", "offload": {"activations": True}},
            "offload.activations",
            "full or none",
            {"recompute": "full"},
        ),
        (
            {"offload": {"parameters": True}},
            "offload.parameters",
            "layout.zero to 3",
            {"layout": {"data": 2, "zero": 3}},
        ),
        (
            {"compile": True, "layout": {"data": 2, "parameter_server": {"servers": 1}}},
            "compile",
            "compile to false",
            {"compile": False},
        ),
        (
            {"offload": {"optimizer": 0.5}, "layout": {"data": 2, "parameter_server": {"servers": 1}}},
            "offload.optimizer",
            "layout.parameter_server out",
            {"layout": {"data": 2}},
        ),
        (HALF_OF_TIED, "offload.optimizer", "to 1 or 0", {"offload": {"optimizer": 1}}),
        (HALF_OF_TIED, "offload.optimizer", "to 1 or 0", {"offload": {}}),
        (HALF_OF_TIED, "offload.optimizer", "layout.pipeline to 1", {"layout": {"data": 2, "zero": 1}}),
        ({"offload": {"to": "disk"}}, "offload.to", "leave offload.to out", {"offload": {}}),
        (
            {"offload": {"to": "disk"}, "layout": {"data": 2, "zero": 3}},
            "offload.to",
            "offload.parameters to true",
            {"offload": {"to": "disk", "parameters": True}},
        ),
        (
            {"offload": {"to": "disk", "parameters": True}},
            "offload.parameters",
            "layout.zero to 3",
            {"layout": {"data": 2, "zero": 3}},
        ),
        (
            {"offload": {"to": "disk", "parameters": True, "optimizer": 1}, "layout": {"data": 2, "zero": 3}},
            "offload.optimizer",
            "to 0",
            {"offload": {"to": "disk", "parameters": True}},
        ),
        (
            {"offload": {"parameters": True, "optimizer": 0.5}, "layout": {"data": 2, "zero": 3}},
            "offload.optimizer",
            "to 0",
            {"offload": {"parameters": True}},
        ),
        ({"recompute": "every-2", "layout": PROFILED}, "recompute", "full", {"recompute": "full"}),
        (
            {"offload": {"activations": True}, "layout": PROFILED},
            "offload.activations",
            "to false",
            {"offload": {"optimizer": 0.5}},
        ),
        (
            {"offload": {"parameters": True}, "layout": {**PROFILED, "data": 2, "zero": 3}},
            "offload.parameters",
            "to false",
            {"offload": {}},
        ),
    ],
)
def test_refusals_name_field_and_remedy(changes: Any, field: str, remedy: str, corrected: Any) -> None:
    with pytest.raises(Refusal) as caught:
        _check(**changes)
    assert caught.value.field == field
    assert remedy in caught.value.remedy
    _check(**{**changes, **corrected})


@pytest.mark.parametrize(
    "changes", [{"compile": True}, {"precision": "fp8"}, {"recompute": "selective"}, {"layout": {"tensor": 2}}], ids=str
)
def test_a_profile_measures_modules_as_they_run(changes: dict[str, Any]) -> None:
    _spec(**{**changes, "layout": {**changes.get("layout", {}), **PROFILED}}).check()


@pytest.mark.parametrize(
    "changes",
    [{}, {"layout": {"context": 2, "ulysses": 2}}, {"layout": {"tensor": 2}, "overlap": {"tensor_chunks": 2}}],
    ids=str,
)
def test_selective_recompute_of_a_block_that_is_one_graph_is_compiled(changes: dict[str, Any]) -> None:
    _check(compile=True, recompute="selective", **changes)


@pytest.mark.parametrize("changes", IN_PARTS, ids=str)
def test_ranks_train_a_spec_of_an_earlier_version_whose_blocks_are_not_compiled(changes: dict[str, Any]) -> None:
    _spec(compile=True, recompute="selective", **changes).check()


@pytest.mark.parametrize("schedule", SPLIT_BACKWARD)
@pytest.mark.parametrize(
    "changes", [{"precision": "fp8"}, {"compile": True}, {"compile": True, "recompute": "full"}], ids=str
)
def test_a_schedule_that_splits_the_backward_pass_runs_with(changes: dict[str, Any], schedule: str) -> None:
    _spec(**changes, layout={"pipeline": 2, "schedule": schedule}).check()


@pytest.mark.parametrize("changes", [{"layout": ZBV}, {"model": {"tied": False}}], ids=str)
def test_a_part_of_the_optimizer_may_be_on_the_host_where_one_rank_holds_both_ends(changes: Any) -> None:
    """Of a V the first rank has them."""
    _spec(**{**HALF_OF_TIED, **changes}).check()
