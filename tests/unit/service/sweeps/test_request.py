"""Rules that concern a sweep and the spec of its jobs, and the specs of trials."""

from typing import Any

import pytest

from shardyard.service.spec import CommandSpec, JobSpec, kind_of
from shardyard.service.sweep_spec import Sweep
from shardyard.service.sweeps.request import metric_of, read_request, rungs_of, spec_of, trial_document
from shardyard.strategies.layout import Refusal

TRAIN: dict[str, Any] = {"name": "a" * 63, "train": {"steps": 100, "global_batch": 4}, "labels": {"team": "search"}}
COMMAND = {"name": "mine", "command": "true"}


def sweep(**fields: object) -> Sweep:
    return Sweep.model_validate({"parameters": {"train.seed": [1, 2]}, **fields})


def test_a_trial_has_a_name_and_labels_of_its_own() -> None:
    document = trial_document(TRAIN, "sweep-1", 999, {"train.seed": 7})
    spec, digest = spec_of(document)
    assert isinstance(spec, JobSpec) and spec.train.seed == 7
    assert spec.name == "a" * 59 + "-999"
    assert spec.labels == {"team": "search", "shardyard/sweep": "sweep-1", "shardyard/trial": "999"}
    assert digest == spec_of(trial_document(TRAIN, "sweep-1", 999, {"train.seed": 7}))[1]
    assert trial_document({**TRAIN, "name": "a" * 58 + "-bcde"}, "s", 1, {})["name"] == "a" * 58 + "-1"


def test_every_trial_has_the_longest_duration_of_the_sweeps_spec_or_one_of_its_own() -> None:
    document = {**COMMAND, "policy": {"max_duration": "8h"}}
    given = [spec_of(trial_document(document, "sweep-1", 0, point))[0] for point in ({}, {"policy.max_duration": 90})]
    assert [spec.policy.max_duration for spec in given] == ["8h", "90s"]


def test_the_metric_of_a_command_has_to_be_named() -> None:
    train, command = kind_of(TRAIN).model_validate(TRAIN), CommandSpec.model_validate(COMMAND)
    assert metric_of(train, sweep()) == "loss" and metric_of(command, sweep(metric="acc")) == "acc"
    with pytest.raises(Refusal) as refused:
        metric_of(command, sweep())
    assert refused.value.field == "sweep.metric"


def test_a_metric_that_no_trial_reports_is_refused() -> None:
    """Those of the user's own model are known once it runs; a parameter may choose it, or where the training state is."""
    train = {**TRAIN["train"], "model": {"family": "gpt2", "preset": "nano"}}
    spec = kind_of(TRAIN).model_validate({**TRAIN, "train": train})
    with pytest.raises(Refusal) as refused:
        metric_of(spec, sweep(metric="val_loss"))
    assert refused.value.field == "sweep.metric"
    assert "gpt2" in refused.value.message and "validation_loss" in refused.value.remedy
    assert metric_of(spec, sweep(metric="validation_loss")) == "validation_loss"
    for path, value in (("train.model.import", "mine:make"), ("train.offload.to", "disk")):
        assert metric_of(spec, sweep(metric="val_loss", parameters={path: [value]})) == "val_loss"
    own = kind_of(TRAIN).model_validate({**TRAIN, "train": {**TRAIN["train"], "model": {"import": "mine:make"}}})
    assert metric_of(own, sweep(metric="acc")) == "acc"


def test_rungs_follow_the_steps_of_the_job_or_of_the_sweep() -> None:
    train, command = kind_of(TRAIN).model_validate(TRAIN), CommandSpec.model_validate(COMMAND)
    assert rungs_of(train, sweep()) == []
    assert rungs_of(train, sweep(asha={"min_steps": 10})) == [10, 30, 90]
    assert rungs_of(command, sweep(asha={"min_steps": 10, "max_steps": 31})) == [10, 30]
    for spec, fields, field in (
        (command, {"asha": {"min_steps": 10}}, "sweep.asha.max_steps"),
        (train, {"asha": {"min_steps": 100}}, "sweep.asha.min_steps"),
        (train, {"asha": {"min_steps": 10}, "metric": "validation_loss"}, "train.eval.every"),
        (train, {"asha": {"min_steps": 1}, "parameters": {"train.steps": [1]}}, "sweep.parameters.train.steps"),
    ):
        with pytest.raises(Refusal) as refused:
            rungs_of(spec, sweep(**fields))
        assert refused.value.field == field


@pytest.mark.parametrize("path", ["train.resume_from", "resume_from", "name"])
def test_what_all_trials_share_cannot_vary(path: str) -> None:
    with pytest.raises(Refusal, match="cannot vary") as refused:
        read_request({**(COMMAND if path == "resume_from" else TRAIN)}, sweep(parameters={path: ["job-a", "job-b"]}))
    assert refused.value.field == f"sweep.parameters.{path}"


@pytest.mark.parametrize("path", ["code", "code.dir", "code.git", "code.ref", "code.ignore"])
def test_code_that_is_uploaded_before_the_trials_cannot_vary(path: str) -> None:
    document = {**COMMAND, "code": {"git": "https://example.com/a", "archive": "0" * 64}}
    with pytest.raises(Refusal, match="cannot vary") as refused:
        read_request(document, sweep(parameters={path: ["main", "new"]}))
    assert refused.value.field == f"sweep.parameters.{path}" and "code.archive" in refused.value.remedy
    assert read_request(document, sweep(parameters={"code.archive": ["0" * 64, "1" * 64]})).points


def test_labels_leave_room_for_those_of_a_trial() -> None:
    labels = {f"label-{at}": "x" for at in range(62)}
    document = {**TRAIN, "labels": labels}
    assert len(spec_of(trial_document(document, "sweep-1", 0, {"train.seed": 1}))[0].labels) == 64
    read_request(document, sweep())
    read_request({**TRAIN, "labels": {**labels, "shardyard/sweep": "mine"}}, sweep())
    for more in ({**TRAIN, "labels": {**labels, "more": "x"}}, document):
        with pytest.raises(Refusal) as refused:
            read_request(
                more, sweep(parameters={"labels.other": ["x", "y"]} if more is document else {"train.seed": [1]})
            )
        assert refused.value.field == "labels"


def test_the_validation_loss_is_compared_where_it_is_measured() -> None:
    train = kind_of(TRAIN).model_validate({**TRAIN, "train": {**TRAIN["train"], "eval": {"every": 20}}})
    assert rungs_of(train, sweep(asha={"min_steps": 10}, metric="validation_loss")) == [10, 30, 90]


def test_the_values_of_all_trials_are_bounded_together() -> None:
    long = {f"resources.env.V{at}": ["a" * 4000, "b" * 4000] for at in range(4)}
    with pytest.raises(Refusal) as refused:
        read_request(COMMAND, sweep(parameters=long, trials=1000))
    assert refused.value.field == "sweep.parameters" and "16000000" in refused.value.message
    assert len(read_request(COMMAND, sweep(parameters=long, trials=100)).points or []) == 100
    short = {f"resources.env.V{at}": {"min": 1e-300, "max": 1.0} for at in range(32)}
    read_request(COMMAND, sweep(parameters=short, trials=1000))


def test_the_first_trial_and_the_ends_of_each_parameter_are_checked() -> None:
    request = read_request(
        {**TRAIN, "sweep": {}}, sweep(parameters={"train.seed": {"min": 1, "max": 9}, "train.steps": [5, 6]})
    )
    assert "sweep" not in request.first and request.points is not None
    drawn = {path.split(".")[1]: value for path, value in request.points[0].items()}
    assert request.first["train"] == {"global_batch": 4, **drawn}
    assert [(path, value) for path, value, _ in request.extremes()] == [
        ("train.seed", 1),
        ("train.seed", 9),
        ("train.steps", 5),
        ("train.steps", 6),
    ]
