"""Every finding about a spec names the field and what would work."""

from typing import Any

import jsonschema
import pytest

from shardyard.api.errors import InvalidDocument
from shardyard.api.http import validation_errors
from shardyard.api.http.validation_errors import job_schema, parameter_errors, read_spec, read_training_spec
from shardyard.service.schemas.problem import FieldError


def spec(**train: Any) -> dict[str, Any]:
    return {"name": "a", "train": {"steps": 5, "global_batch": 4, **train}}


def findings(document: Any) -> list[FieldError]:
    with pytest.raises(InvalidDocument) as refusal:
        read_spec(document)
    return refusal.value.errors


def test_a_good_spec_is_read() -> None:
    assert read_training_spec(spec(optimizer={"lr": 3e-4, "weight_decay": 0})).train.optimizer.lr == 3e-4


@pytest.mark.parametrize(
    ("document", "field", "message", "remedy"),
    [
        (spec(layuot={"data": 2}), "train.layuot", "Unknown key 'layuot'", "Did you mean 'layout'?"),
        (spec(layout={"dta": 2}), "train.layout.dta", "Unknown key", "Did you mean 'data'?"),
        ({**spec(), "polcy": {}}, "polcy", "Unknown key", "Did you mean 'policy'?"),
        (spec(zzz=1), "train.zzz", "Unknown key", "Known here: checkpoint, compile, data"),
        ({"name": "a", "train": {"steps": 5}}, "train.global_batch", "missing", "Add train.global_batch: sequences"),
        (spec(layout={"data": 0}), "train.layout.data", "0 should be greater", "Use 1 or more."),
        (spec(layout={"zero": 5}), "train.layout.zero", "5 is not a choice", "0, 1, 2, 3"),
        (spec(layout={"zero": False}), "train.layout.zero", "False should be", "Write a whole number"),
        (spec(layout={"zero": True}), "train.layout.zero", "True should be", "Write a whole number"),
        (spec(layout={"schedule": "1f1"}), "train.layout.schedule", "'1f1'", "Did you mean '1f1b'?"),
        (spec(precision="bf61"), "train.precision", "'bf61'", "Did you mean 'bf16'?"),
        (spec(precision={"gradients": "bf16"}), "train.precision.gradients", "'bf16'", "fp32, compute"),
        (spec(precision=16), "train.precision", "16", "fp64, fp32, bf16"),
        (spec(steps="many"), "train.steps", "'many' should be", "Write a whole number"),
        (spec(steps=True), "train.steps", "True should be", "Write a whole number"),
        (spec(steps="5"), "train.steps", "'5' should be", "without quotes"),
        (spec(checkpoint={"final": "no"}), "train.checkpoint.final", "'no' should be", "Write true or false"),
        (spec(optimizer={"lr": "3e-4"}), "train.optimizer.lr", "'3e-4' should be", "Write a number"),
        (spec(steps=2.5), "train.steps", "2.5 should be", "Write a whole number"),
        (spec(optimizer={"lr": float("nan")}), "train.optimizer.lr", "not a finite number", "Set train.optimizer.lr"),
        (spec(optimizer={"lr": float("inf")}), "train.optimizer.lr", "not a finite number", "Set train.optimizer.lr"),
        (spec(optimizer={"lr": -1.0}), "train.optimizer.lr", "-1.0 should be", "Use more than 0"),
        (spec(model={"import": "a:b", "args": {"x": float("nan")}}), "train.model.args.x", "nan", "finite number"),
        (spec(model={"preset": "nana"}), "train.model", "nano, micro", "Correct train.model"),
        (spec(model={"dim": 100, "heads": 3}), "train.model", "not divisible by heads", "Correct train.model"),
        (spec(model={"layers": 0}), "train.model.layers", "greater than or equal to 1", "Use 1 or more."),
        (spec(data={"source": "text"}), "train.data", "needs files", "Correct train.data"),
        (spec(data={"source": "text", "files": [1]}), "train.data.files[0]", "1 should be", "Write text"),
        ({**spec(), "name": "Foo Bar"}, "name", "'Foo Bar'", "lower-case letters"),
        ({**spec(), "labels": {"a b": "c"}}, "labels.a b", "pattern", "Use text that matches"),
        ({**spec(), "labels": {"a": "x\x1b[2Jy"}}, "labels.a", "pattern", "Leave out line breaks, control"),
        ({**spec(), "labels": {"a": "x\ny"}}, "labels.a", "pattern", "Leave out line breaks"),
        ({**spec(), "labels": {"a": "\u202egnp"}}, "labels.a", "pattern", "direction of text"),
        ({**spec(), "labels": {"a\u202e": "b"}}, "labels.a\u202e", "pattern", "Use text that matches"),
        ({**spec(), "name": "a\x1b[2J"}, "name", "pattern", "matches"),
        ({**spec(), "labels": {"a": 4}}, "labels.a", "4 should be", "Write text, in quotes"),
        (spec(layout="data 2"), "train.layout", "'data 2' is not a mapping", "Write a mapping"),
        (spec(model=[]), "train.model", "[] is not a mapping", "Write a mapping"),
        ({**spec(), "labels": []}, "labels", "[] is not a mapping", "Write a mapping"),
        (spec(checkpoint={"uri": "x" * 2000}), "train.checkpoint.uri", "at most 1024 characters", "Use at most 1024"),
        ([1], None, "mapping", "mapping"),
        (None, None, "mapping", "mapping"),
    ],
)
def test_a_finding_names_field_and_remedy(document: Any, field: str | None, message: str, remedy: str) -> None:
    found = next(finding for finding in findings(document) if finding.field == field)
    assert message in found.message
    assert remedy in (found.remedy or "")


def test_all_findings_are_reported_at_once_and_each_once() -> None:
    document = spec(steps=0, layuot={}, optimizer={"lr": float("nan"), "beta1": 2})
    fields = [finding.field for finding in findings(document)]
    assert sorted(filter(None, fields)) == [
        "train.layuot",
        "train.optimizer.beta1",
        "train.optimizer.lr",
        "train.steps",
    ]


def test_no_more_findings_than_can_be_read() -> None:
    assert len(findings({**spec(), **{f"k{i}": 1 for i in range(500)}})) == 50


def test_a_parameter_that_is_no_finite_number_has_its_own_remedy() -> None:
    found = parameter_errors(
        [{"loc": ("query", "since"), "type": "finite_number", "msg": "Input should be a finite number"}]
    )
    assert [(one.field, one.remedy) for one in found] == [("since", "Use a finite number.")]


def test_only_the_findings_that_are_returned_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may have tens of thousands of wrong keys. Non-finite numbers come first, then pydantic's findings in its order."""
    made = list[str | None]()

    def counted(**values: Any) -> FieldError:
        made.append(values["field"])
        return FieldError(**values)

    monkeypatch.setattr(validation_errors, "FieldError", counted)
    unknown = {f"k{i}": 1 for i in range(200)}
    infinite = {f"i{i}": float("inf") for i in range(60)}
    for wrong, first in (
        (unknown, [*unknown][:50]),
        ({**unknown, "i": float("nan")}, ["i", *unknown][:50]),
        ({**unknown, **infinite}, [*infinite][:-51:-1]),
    ):
        made.clear()
        assert [finding.field for finding in findings({**spec(layout={"tensor": 3}), **wrong})] == first == made
    made.clear()
    wrong_parameters = [{"loc": ("query", name), "type": "extra_forbidden", "msg": "No"} for name in unknown]
    assert [finding.field for finding in parameter_errors(wrong_parameters)] == [*unknown][:50] == made


def test_the_published_schema_accepts_what_is_accepted() -> None:
    jsonschema.Draft202012Validator.check_schema(job_schema())
    jsonschema.validate(spec(layout={"data": 2}, model={"import": "a:b"}), job_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spec(layuot={}), job_schema())


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("team", "search", True),
        ("a.b/c_d-e", "", True),
        ("a" * 63, "x" * 255, True),
        ("", "x", False),
        ("a b", "x", False),
        ("-a", "x", False),
        ("a" * 64, "x", False),
        ("a", "x" * 256, False),
        ("a", 1, False),
    ],
)
def test_a_label_is_to_the_schema_what_it_is_to_the_server(key: str, value: Any, good: bool) -> None:
    document = {**spec(), "labels": {key: value}}
    if good:
        read_spec(document)
    else:
        findings(document)
    assert jsonschema.Draft202012Validator(job_schema()).is_valid(document) is good


def test_what_may_be_null_has_no_object_as_its_default() -> None:
    """Generators of clients drop such a field, and everything that holds it."""
    found = []

    def look(node: Any, path: str) -> None:
        if isinstance(node, dict):
            if {"type": "null"} in node.get("anyOf", []) and isinstance(node.get("default"), dict):
                found.append(path)
            for name, inner in node.items():
                look(inner, f"{path}/{name}")

    look(job_schema(), "")
    assert found == []
    assert read_spec(spec()).policy.straggler is not None


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        (spec(layuot={}, layout={"tensor": 3}), {"train.layuot", "train.layout.tensor"}),
        (spec(steps="many", layout={"data": 3}), {"train.steps", "train.global_batch"}),
        ({"train": {"global_batch": 4, "layout": {"data": 3}}}, {"name", "train.steps", "train.global_batch"}),
        # What the layout's check would read of the field that is wrong is not guessed.
        (spec(layout={"tensor": 3, "zero": 7}), {"train.layout.zero"}),
        (spec(global_batch="4", layout={"data": 3}), {"train.global_batch"}),
        (spec(model={"preset": "nana"}, layout={"tensor": 8}), {"train.model"}),
        (spec(model={"preset": "nana"}, layout={"data": 3}), {"train.model", "train.global_batch"}),
        (spec(model={"from": "/nowhere"}, steps=0, layout={"data": 3}), {"train.steps", "train.global_batch"}),
    ],
)
def test_what_the_schema_and_the_layout_find_is_said_at_once(document: Any, fields: set[str]) -> None:
    assert {finding.field for finding in findings(document)} == fields
    assert all(finding.remedy for finding in findings(document))


def test_labels_in_other_scripts_are_taken() -> None:
    label = "Größe 100 % – 日本語 \U0001f680"
    assert read_spec({**spec(), "labels": {"team": label}}).labels == {"team": label}


@pytest.mark.parametrize(
    ("document", "field", "text", "remedy"),
    [
        ({}, "train", "A job needs train, or a command.", "or command, to run a program"),
        ({"command": [], "ranks": 2}, "command", "at least 1 item", "Write at least 1 item."),
        ({"command": 3}, "command", "3 should be a valid string", ""),
        ({"command": ["x", 3]}, "command[1]", "3 should be a valid string", ""),
        (
            {"command": "x", "env": {"python": ["a\n"]}},
            "env.python[0]",
            "should match pattern",
            "Leave out line breaks",
        ),
        (
            {"command": "x", "env": {"python": {"einops": "0.8"}}},
            "env.python",
            "{'einops': '0.8'} is a mapping of keys to values.",
            "Write a list, or text. A file of requirements",
        ),
        ({"command": {"str": "x"}}, "command", "is a mapping", "Write a list, or text."),
        ({"command": "x", "labels": {"str": 4}}, "labels.str", "4 should be", "Write text"),
        ({"command": "x", "env": {"python": []}}, "env.python", "at least 1 item", "Or a list of requirements"),
        ({"command": "x", "env": {"LR": "0.1"}}, "env", "'LR' is no key of env", "resources: {env: {NAME: value}}"),
        ({"command": "x", "env": {}}, "env.python", "none of python, conda and image", "env: {conda: environment.yml}"),
        ({"command": "x", "env": {"python": "uv.lock", "conda": "x"}}, "env.python", "both python and", "Leave one"),
        (
            {"command": "x", "env": {"conda": "a.yml", "version": "3.12"}},
            "env.version",
            "goes with python",
            "python=3.12",
        ),
        (
            {"command": "x", "env": {"conda": "a.yml", "inherit": True}},
            "env.inherit",
            "goes with python",
            "torch under",
        ),
        ({"command": "x", "env": {"image": "me/mine:1"}}, "env.image", "'me/mine:1' is an address", "ray.workerGroups"),
        ({"command": "x", "env": {"image": "my image"}}, "env.image", "", ""),
        (
            {"command": "x", "env": {"image": "nemo", "inherit": True}},
            "env.inherit",
            "no environment is built",
            "own Python",
        ),
        (
            {"command": "x", "env": {"python": ["a"], "nix": "x"}},
            "env.nix",
            "Unknown key",
            "conda, image, inherit, python",
        ),
        ({"command": ["x"], "rank": 2}, "rank", "Unknown key 'rank'", "Did you mean 'ranks'?"),
        (
            {"command": ["x"], "resources": {"gpu": "H100:8"}},
            "resources.gpu",
            "'H100:8' is not the name of a model of GPU.",
            "such as gpu: H100. The number of GPUs is that of the ranks",
        ),
        ({"command": ["x"], "resources": {"gpu": 8}}, "resources.gpu", "8 is not the name of a model", "`ranks` of a"),
        ({"command": ["x"], "resources": {"gpu": "two words"}}, "resources.gpu", "'two words' is not", "gpu: H100"),
        ({"command": ["x"], "resources": {"gpu": True}}, "resources.gpu", "True should be a valid string", ""),
        ({"command": ["x"], "ranks": 3, "ranks_per_node": 2}, None, "does not divide ranks 3", ""),
        ({"command": ["x"], "tensorboard": ""}, "tensorboard", "at least 1 character", ""),
        (
            {"command": ["x"], "policy": {"max_duration": "8"}},
            "policy.max_duration",
            "'8' is not a duration.",
            "Write 90s, 30m, 8h, 2d or 1h30m",
        ),
        ({"command": ["x"], "policy": {"straggler": None}}, "policy.straggler", "Unknown key", "hang_timeout_s"),
        ({"command": ["x"], "train": {"steps": 1}}, "train", "Unknown key 'train'", ""),
        ({"command": ["x"], "apiVersion": "shardyard/v2"}, "apiVersion", "is not a choice", "shardyard/v1"),
    ],
)
def test_a_document_that_cannot_be_meant_is_refused(
    document: dict[str, Any], field: str | None, text: str, remedy: str
) -> None:
    (found,) = findings({"name": "mine", **document})
    assert found.field == field and text in found.message and remedy in (found.remedy or "")


def test_what_a_spec_without_its_kind_has_is_known_of_both_kinds() -> None:
    found = {finding.field: finding for finding in findings({"name": "mine", "ranks": 2, "env": {}, "rankss": 3})}
    assert found.keys() == {"train", "ranks", "env", "rankss"}
    for field in ("ranks", "env"):
        assert found[field].message == f"{field!r} is for a job that runs a command."
        assert (found[field].remedy or "").startswith("Add command")
    assert found["rankss"].message == "Unknown key 'rankss'."
    assert (found["rankss"].remedy or "").startswith("Did you mean 'ranks'? Known here: apiVersion, checkpoint, code,")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [("ranks", "write command in the place of train"), ("checkpoint", "Write it as train.checkpoint.")],
)
def test_keys_of_programs_in_a_training_are_named(key: str, remedy: str) -> None:
    [found] = findings({**spec(), key: {}})
    assert found.field == key and "runs a command" in found.message and remedy in (found.remedy or "")


def test_a_spec_of_another_tool_has_one_finding() -> None:
    document = {"name": "resnet", "num_nodes": 2, "resources": {"accelerators": "H100:8"}, "run": "python train.py"}
    [found] = findings(document)
    assert found.field == "run" and "SkyPilot" in found.message and "docs/how-to/move.md" in (found.remedy or "")


def test_a_command_has_no_layout() -> None:
    with pytest.raises(InvalidDocument, match="runs a command"):
        read_training_spec({"name": "mine", "command": "true"})
