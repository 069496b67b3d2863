"""The spec of a job becomes that of its clone."""

from typing import Any

import pytest

from shardyard.api.client import ApiError, clone_requests
from shardyard.api.errors import InvalidParameter
from shardyard.api.spec_copy import cloned
from shardyard.api.spec_file import sent_text
from shardyard.api.spec_overrides import placed
from shardyard.service.errors import InvalidSpec
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.submitted_spec import SubmittedSpec
from shardyard.service.spec import JobSpec
from shardyard.strategies.layout import Layout
from shardyard.workers.advisor.fixed_options import fixed_by

TEXT = "name: tiny  # the smallest\ntrain: {steps: 20, layout: {data: 2}}\nlabels: {team: search}\n"


def job(**changes: Any) -> Job:
    spec = {
        "name": "tiny",
        "train": {"steps": 20, "global_batch": 8, "layout": {"tensor": 2}},
        "labels": {"shardyard/sweep": "s", "a": "b"},
    }
    fields = {"id": "job-1", "name": "tiny", "state": "failed", "spec": spec, "created_at": 1.0, **changes}
    return Job.model_validate(fields)


def submitted(text: str | None = TEXT, **changes: Any) -> SubmittedSpec:
    return SubmittedSpec(job="job-1", text=text, format=None if text is None else "yaml", **changes)


def test_a_clone_has_the_comments_another_name_and_its_parent() -> None:
    given = cloned(job(), submitted())
    assert given.document["name"] == "tiny-clone"
    assert given.document["labels"] == {"team": "search", "parent": "job-1"}
    document = placed(given.document, {"train.steps": 30})
    sent = sent_text(given, document)
    assert sent.format == "yaml" and "name: tiny-clone  # the smallest\n" in sent.text and "steps: 30" in sent.text
    assert cloned(job(name="a-clone"), submitted()).document["name"] == "a-clone"
    assert len(cloned(job(name="n" * 63), submitted()).document["name"]) == 63
    assert cloned(job(), submitted(), "other").document["name"] == "other"


def test_a_clone_has_the_present_layout() -> None:
    assert cloned(job(), submitted()).document["train"]["layout"] == {"data": 2}
    given = cloned(job(), submitted(layout_changed=True))
    assert given.document["train"] == {"steps": 20, "layout": {"data": 1, "tensor": 2}}
    with pytest.raises(InvalidSpec, match="cannot read the spec of job-1"):
        cloned(job(spec={"name": "tiny", "train": {"of_a_later_version": 1}}), submitted(layout_changed=True))


@pytest.mark.parametrize(
    "text", ["name: tiny  # the smallest\ntrain: {steps: 20, global_batch: 8, layout: {auto: {world: 8}}}\n", None]
)
def test_what_is_set_in_a_layout_that_the_advisor_chose_counts(text: str | None) -> None:
    """The layout is kept as the user's own."""
    auto = {"world": 8, "devices": "8 × CPU", "step_s": 0.5}
    spec = {**job().spec, "train": {"steps": 20, "global_batch": 8, "layout": {"data": 8, "auto": auto}}}
    given = cloned(job(spec=spec, layout_choice="chosen by the layout advisor"), submitted(text))

    def copy(**values: int) -> Layout:
        document = placed(given.document, {f"train.layout.{path}": value for path, value in values.items()})
        return JobSpec.model_validate(document).train.layout

    assert (copy().auto, copy().data, copy(data=4).auto, copy(data=4).data) == (None, 8, None, 4)
    sent = sent_text(given, placed(given.document, {"train.layout.data": 4}))
    assert ("# the smallest" in sent.text) is (text is not None)


@pytest.mark.parametrize(
    "layout",
    [
        "{auto: {world: 8}}",
        "auto",
        "{data: 8, zero: 1}, recompute: {mode: full}",  # the texts of retries
        "{auto: null, data: 8, zero: 1}, recompute: {mode: full}",
        None,
    ],
)
@pytest.mark.parametrize(
    ("values", "world"),
    [
        ({"train.layout.auto.world": 4}, 4),
        ({"train.layout.auto.world": None}, None),
        ({"train.layout.auto": {}}, None),
        ({"train.layout": {"auto": {"world": 4}}}, 4),
        ({"train.layout": "auto"}, None),
    ],
)
def test_a_clone_that_asks_the_advisor_again_keeps_nothing_that_it_chose(
    layout: str | None, values: dict[str, Any], world: int | None
) -> None:
    text = None if layout is None else f"name: tiny\ntrain: {{steps: 20, global_batch: 8, layout: {layout}}}\n"
    auto = {"world": 8, "devices": "8 × CPU", "step_s": 0.5}
    train = {
        "steps": 20,
        "global_batch": 8,
        "layout": {"data": 8, "zero": 1, "auto": auto},
        "recompute": {"mode": "full"},
    }
    stored = JobSpec.model_validate({**job().spec, "train": train}).model_dump(mode="json")
    given = cloned(job(spec=stored, layout_choice="chosen by the layout advisor"), submitted(text), None, values)
    asked = JobSpec.model_validate(placed(given.document, values)).train
    assert asked.layout.auto is not None and (asked.layout.auto.world, asked.layout.auto.undecided) == (world, True)
    assert str(fixed_by(asked, 8)) == "", "the layout advisor chooses everything"


@pytest.mark.parametrize("values", [{"train.layout.auto": None}, {"train.layout": {"auto": None, "data": 8}}])
def test_a_clone_in_which_auto_is_null_keeps_the_layout_that_was_chosen(values: dict[str, Any]) -> None:
    layout = {"data": 8, "auto": {"world": 8, "devices": "8 × CPU", "step_s": 0.5}}
    spec = {**job().spec, "train": {"steps": 20, "global_batch": 8, "layout": layout}}
    text = "name: tiny\ntrain: {steps: 20, global_batch: 8, layout: auto}\n"
    given = cloned(job(spec=spec, layout_choice="chosen by the layout advisor"), submitted(text), None, values)
    kept = JobSpec.model_validate(placed(given.document, values)).train.layout
    assert (kept.auto, kept.data) == (None, 8)


@pytest.mark.parametrize(
    "now", [{"ranks": 2}, {"ranks": 4, "ranks_per_node": 2}, {"ranks": 3, "elastic": {"min": 1, "max": 3}}]
)
def test_a_clone_of_a_command_has_its_present_ranks(now: dict[str, Any]) -> None:
    text = "name: tiny\ncommand: [python, train.py]  # ours\nranks: {min: 2, max: 8}\n"
    spec = {"name": "tiny", "command": ["python", "train.py"], "elastic": None, **now}
    given = cloned(job(spec=spec), submitted(text, layout_changed=True))
    layout = {name: given.document.get(name) for name in ("ranks", "ranks_per_node", "elastic")}
    ranks = now.get("elastic") or now["ranks"]
    assert layout == {"ranks": ranks, "ranks_per_node": now.get("ranks_per_node"), "elastic": None}
    assert placed(given.document, {"ranks": 5}).get("elastic") is None, "a number that is set is the number"
    assert "command: [python, train.py]  # ours\n" in sent_text(given, given.document).text
    assert cloned(job(spec=spec), submitted(text)).document["ranks"] == {"min": 2, "max": 8}


def test_without_a_text_the_spec_itself_is_cloned_but_for_its_place_in_a_sweep() -> None:
    given = cloned(job(), submitted(None))
    assert given.document["train"] == job().spec["train"] and given.document["labels"] == {"a": "b", "parent": "job-1"}
    assert sent_text(given, given.document).format == "json"


def test_the_client_makes_paths_absolute_and_reports_what_has_no_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    found = clone_requests.copied(job(), submitted(), None, {"train.data.files": ["a.txt"], "train.seed": 3})
    assert found is not None
    assert found.document["train"]["data"] == {"files": [f"{tmp_path}/a.txt"]} and found.document["train"]["seed"] == 3
    with pytest.raises(ApiError) as refused:
        clone_requests.copied(job(), submitted(), None, {"name.first": "x"})
    assert refused.value.code == "invalid_request" and refused.value.errors[0].field == "name.first"
    with pytest.raises(InvalidParameter):
        placed({}, {"a[1]": 1})


ARCHIVE = "0" * 64


@pytest.mark.parametrize(
    ("code", "name", "values", "by_service"),
    [
        ({"dir": "/src", "archive": ARCHIVE}, None, {}, True),
        ({"dir": "/src", "archive": ARCHIVE}, "other", {"ranks": 3, "cwd": "sub", "code.ignore": ["*.bin"]}, True),
        (None, None, {"cwd": "/shared", "env.python": ["einops"]}, True),
        ({"dir": "/src", "archive": ARCHIVE}, None, {"code.archive": None}, False),
        ({"dir": "/src", "archive": ARCHIVE}, None, {"code.dir": "/other"}, False),
        ({"dir": "/src", "archive": ARCHIVE}, None, {"code.dir": "/other", "code.archive": "1" * 64}, True),
        ({"git": "/repository", "ref": "v1", "archive": ARCHIVE}, None, {"code.ref": "v2"}, False),
        ({"dir": "/src", "archive": ARCHIVE}, None, {"code.git": "/repository", "code.dir": None}, False),
        (None, None, {"code": {"dir": "/src"}}, False),
        (None, None, {"cwd": "sub"}, False),
        (None, None, {f"labels.l{number}": "x" for number in range(101)}, False),
        (None, "No name", {}, False),
    ],
)
def test_the_service_clones_what_needs_nothing_of_this_machine(
    code: Any, name: str | None, values: dict[str, Any], by_service: bool
) -> None:
    spec = {"name": "tiny", "command": ["true"], **({} if code is None else {"code": code})}
    found = clone_requests.copied(job(spec=spec), submitted(None), name, values)
    assert (found is None) is by_service
    assert found is None or not (found.document.get("code") or {}).get("archive"), "code from elsewhere is uploaded"


def test_a_clone_of_an_elastic_training_has_its_range() -> None:
    layout = {"data": 4, "elastic": {"min": 1, "max": 4}, "tensor": 2}
    spec = {**job().spec, "train": {**job().spec["train"], "layout": layout}}
    given = cloned(job(spec=spec), submitted(None))
    assert given.document["train"]["layout"] == {"data": {"min": 1, "max": 4}, "tensor": 2}


@pytest.mark.parametrize(
    ("named", "stored", "expected"),
    [
        ("source", "source", "/checkpoints/job-0/step-00000003"),  # by now the name may be that of a newer job
        ("models/llama@best", "models/llama@3", "models/llama@3"),
        (None, None, None),
    ],
)
def test_a_clone_begins_where_its_job_began(named: str | None, stored: str | None, expected: str | None) -> None:
    resume = None if named is None else "/checkpoints/job-0/step-00000003"
    spec = {**job().spec, "train": {**job().spec["train"], "resume_from": stored}}
    text = "name: tiny\ntrain: {steps: 20" + ("}" if named is None else f", resume_from: {named}}}") + "\n"
    for copy in (
        cloned(job(spec=spec), submitted(text, resume=resume)),
        cloned(job(spec=spec), submitted(None, resume=resume)),
    ):
        assert copy.document["train"].get("resume_from") == expected
    command = {"name": "tiny", "command": ["a"], "resume_from": stored}
    of_command = cloned(
        job(spec=command), submitted("name: tiny\ncommand: [a]\nresume_from: source\n", resume="/c/step-1")
    )
    assert of_command.document["resume_from"] == ("models/llama@3" if stored == "models/llama@3" else "/c/step-1")


def test_a_clone_of_a_job_with_all_labels_has_no_more() -> None:
    labels = ", ".join(f"l{n}: a" for n in range(64))
    given = cloned(job(), submitted(f"name: tiny\nlabels: {{{labels}}}\n"))
    assert len(given.document["labels"]) == 64 and "parent" not in given.document["labels"]
