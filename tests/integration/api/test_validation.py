"""What could only fail once devices are held is refused at its submission; what has no effect is said, and the job runs."""

import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from harness.stored_checkpoints import checkpoint_path, save_checkpoint
from tokenizers import Tokenizer, models, pre_tokenizers

from shardyard.api.cli.main import run
from shardyard.workers.checkpoint.manifest import MANIFEST

from .conftest import SPEC, Plane

Spec = dict[str, Any]


def train(**changes: Any) -> Spec:
    return {**SPEC, "train": {**SPEC["train"], **changes}}


async def refused(api: httpx2.AsyncClient, spec: Spec) -> tuple[str, str, str]:
    """Code, field and remedy, the same of a preview and of a submission."""
    answers = [await api.post(f"/v1/jobs{path}", json=spec) for path in ("/preview", "")]
    assert all(answer.status_code in (409, 422) for answer in answers), [answer.text for answer in answers]
    found = {(a.json()["code"], a.json()["errors"][0]["field"], a.json()["errors"][0]["remedy"]) for a in answers}
    assert len(found) == 1
    return found.pop()


async def test_a_vocabulary_below_the_tokenizers(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    code, field, remedy = await refused(api, train(model={"vocab": 200}))
    assert (code, field) == ("invalid_spec", "train.model.vocab") and "Use 256 or more" in remedy
    made = Tokenizer(models.BPE(vocab={chr(300 + number): number for number in range(500)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(tmp_path / "tokenizer.json"))
    data = {"tokenizer": str(tmp_path), "seq_len": 64}
    assert (await refused(api, train(model={"vocab": 256}, data=data)))[1] == "train.model.vocab"
    assert (await api.post("/v1/jobs", json=train(model={"vocab": 512}, data=data))).status_code == 201


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data": {"source": "text", "files": ["corpus/*.txt"]}}, "train.data.files"),
        ({"data": {"source": "text", "files": ["/etc/hostname", "./a.txt"]}}, "train.data.files"),
        ({"data": {"tokenizer": "tokenizer.json"}}, "train.data.tokenizer"),
        ({"model": {"import": "a:b", "code": "code"}}, "train.model.code"),
        ({"model": {"from": "models/one"}}, "train.model.from"),
        ({"checkpoint": {"uri": "checkpoints"}}, "train.checkpoint.uri"),
        ({"checkpoint": {"uri": "~/checkpoints"}}, "train.checkpoint.uri"),
        ({"resume_from": "./checkpoints"}, "train.resume_from"),
    ],
)
async def test_a_relative_path(api: httpx2.AsyncClient, changes: Spec, field: str) -> None:
    code, found, remedy = await refused(api, train(**changes))
    assert (code, found) == ("unknown_checkpoint" if "resume" in field else "invalid_spec", field)
    assert "absolute path" in remedy


async def test_text_that_is_too_short(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    def data(seq_len: int, **more: Any) -> Spec:
        return train(
            data={"source": "text", "files": [f"{tmp_path}/*"], "seq_len": seq_len, "validation": 0.25, **more}
        )

    (tmp_path / "a.txt").write_text("x" * 99)  # and a separator: 100 tokens, of which 25 are held out
    assert (await api.post("/v1/jobs", json=data(24))).status_code == 201
    code, field, remedy = await refused(api, data(25))
    assert (code, field) == ("empty_corpus", "train.data.seq_len") and "more text" in remedy
    (tmp_path / "large.txt").write_bytes(b"x" * (2 << 20))  # as large as it is its bytes are counted
    assert (await api.post("/v1/jobs", json=data(1 << 17))).status_code == 201
    assert (await refused(api, data(1 << 20)))[1] == "train.data.seq_len"
    assert (await refused(api, train(data={"seq_len": 1 << 20})))[:2] == ("empty_corpus", "train.data.seq_len")


@pytest.mark.parametrize("where", ["/proc/checkpoints", "{tmp}/file", "{tmp}/file/below", "/dev/null"])
async def test_checkpoints_that_could_not_be_written(api: httpx2.AsyncClient, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    found = await refused(api, train(checkpoint={"uri": where.format(tmp=tmp_path)}))
    assert found[:2] == ("invalid_spec", "train.checkpoint.uri")
    there = train(checkpoint={"uri": f"{tmp_path}/new/folders"})
    assert (await api.post("/v1/jobs", json=there)).status_code == 201
    assert not (tmp_path / "new").exists()


def garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff")


def other_content(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"step": 7}))


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("spoil", [garbage, other_content, half, pipe])
async def test_a_broken_manifest_names_the_checkpoint_before_it(
    api: httpx2.AsyncClient, tmp_path: Path, spoil: Any
) -> None:
    for step in (5, 10):
        save_checkpoint(tmp_path, step)
    wanted = train(resume_from=str(tmp_path), resume_data="restart")
    assert (await api.post("/v1/jobs", json=wanted)).status_code == 201
    spoil(checkpoint_path(tmp_path, 10) / MANIFEST)
    code, field, remedy = await refused(api, wanted)
    assert (code, field) == ("checkpoint_corrupt", "train.resume_from")
    assert remedy.endswith(str(checkpoint_path(tmp_path, 5)))
    older = train(resume_from=str(checkpoint_path(tmp_path, 5)), resume_data="restart")
    assert (await api.post("/v1/jobs", json=older)).status_code == 201
    garbage(checkpoint_path(tmp_path, 5) / MANIFEST)
    assert "another checkpoint" in (await refused(api, wanted))[2]


async def test_arguments_that_a_module_does_not_take(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def model(width, *, depth=2): ...\n")

    def own(**args: Any) -> Spec:
        return train(model={"import": "mine:model", "code": str(tmp_path), "args": args})

    assert (await api.post("/v1/jobs", json=own(width=8))).status_code == 201
    code, field, remedy = await refused(api, own(widht=8))
    assert (code, field) == ("invalid_spec", "train.model.args.widht") and "Did you mean 'width'?" in remedy
    assert (await refused(api, own(depth=3)))[1] == "train.model.args"
    (tmp_path / "mine.py").write_text("def model(:\n")
    assert (await refused(api, own(width=8)))[1] == "train.model.import"


async def test_a_source_of_the_users_own(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def model(): ...\ndef images(size, depth=2): ...\n")
    model = {"import": "mine:model", "code": str(tmp_path)}

    def own(options: Spec, **more: Any) -> Spec:
        return train(**{"model": model, "data": {"source": "mine:images", "options": options}, **more})

    answer = await api.post("/v1/jobs/preview", json=own({"size": 8}))
    assert (answer.status_code, answer.json()["tokens_per_step"]) == (200, SPEC["train"]["global_batch"]), answer.text
    for spec, expected in (
        (own({"siez": 8}), ("invalid_spec", "train.data.options.siez", "Did you mean 'size'?")),
        (own({}), ("invalid_spec", "train.data.options", "Add size to data.options.")),
        (own({"size": 8}, model={}), ("invalid_layout", "train.data.source", "Name the module in model.import")),
        (
            own({"size": 8}, layout={"tensor": 2}),
            ("invalid_layout", "train.layout.tensor", "ZeRO 0 to 3 and pipelines work"),
        ),
        (
            own({"size": 8}, layout={"pipeline": {"stages": 2, "split": "profile"}}),
            ("invalid_layout", "train.layout.pipeline", "Leave split: profile out"),
        ),
        (own({"size": 8}, loss={"z_loss": 0.1}), ("invalid_layout", "train.loss.z_loss", "Leave")),
        (train(data={"options": {"size": 8}}), ("invalid_spec", "train.data", "")),
        (train(model=model, data={"source": "mine:images", "seq_len": 64}), ("invalid_spec", "train.data", "")),
        (train(data={"source": "texts"}), ("invalid_spec", "train.data.source", "")),
    ):
        code, field, remedy = await refused(api, spec)
        assert (code, field) == expected[:2] and expected[2] in remedy, (code, field, remedy)


async def test_every_route_refuses_parameters_that_it_does_not_know(api: httpx2.AsyncClient) -> None:
    paths = (await api.get("/openapi.json")).json()["paths"]
    asked = [(method, path) for path, operations in paths.items() for method in operations]
    assert len(asked) > 40
    for method, path in asked:
        url = path.replace("{job}", "tiny").replace("{position}", "1").replace("{", "").replace("}", "")
        answer = await api.request(
            method, url, params={"nonsense": "1"}, json={} if method in ("post", "put") else None
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), (method, path, answer.text)
        [found] = answer.json()["errors"]
        assert found["field"] == "nonsense" and found["remedy"].startswith("It takes"), (method, path)
    [found] = (await api.get("/v1/jobs", params={"limti": 3})).json()["errors"]
    assert found["remedy"].startswith("Did you mean 'limit'?")


NO_EFFECT = {"schedule": {"warmup": 50}, "layout": {"data": 2, "schedule": "gpipe"}, "eval": {"every": 21}}
FIELDS = ["train.schedule.warmup", "train.layout.schedule", "train.eval.every"]


async def test_options_without_effect_are_said(api: httpx2.AsyncClient) -> None:
    for path, status in (("/preview", 200), ("", 201)):
        answer = await api.post(f"/v1/jobs{path}", json=train(**NO_EFFECT))
        assert answer.status_code == status
        answered = answer.json()["warnings"]
        assert [one["field"] for one in answered] == FIELDS and all(
            one["message"] and one["remedy"] for one in answered
        )
        assert (await api.post(f"/v1/jobs{path}", json=SPEC)).json()["warnings"] == []


async def test_a_script_that_is_not_sent_is_said(api: httpx2.AsyncClient) -> None:
    program = {"name": "mine", "command": ["python", "train.py"], "ranks": 2}
    for path, status in (("/preview", 200), ("", 201)):
        answer = await api.post(f"/v1/jobs{path}", json=program)
        assert answer.status_code == status
        [found] = answer.json()["warnings"]
        assert found["field"] == "command" and "'train.py'" in found["message"] and "code: {dir: .}" in found["remedy"]


@pytest.mark.parametrize("arguments", [["submit"], ["submit", "--dry-run"]])
def test_the_command_line_says_them(
    plane: Plane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(train(**NO_EFFECT, checkpoint={"uri": "relative/to/the/file"})))
    assert run([*arguments, str(path)]) == 0
    printed = capsys.readouterr()
    assert next(line for line in printed.err.splitlines() if "warning:" in line).startswith(f"warning: {FIELDS[0]}: ")
    assert "warning" not in printed.out
