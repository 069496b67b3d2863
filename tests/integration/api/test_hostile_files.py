"""Names in a spec that stand for no file, or for too many: refused with code, field and remedy, and nothing else waits for them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.workers.data import file_pattern

from .conftest import SPEC, Plane, ask

Spec = dict[str, Any]


def train(**changes: Any) -> Spec:
    return {**SPEC, "train": {**SPEC["train"], **changes}}


def text(*files: Any) -> Spec:
    return train(data={"source": "text", "files": [str(file) for file in files]})


def tokenizer(file: Any) -> Spec:
    return train(data={"tokenizer": str(file)})


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of what is no file: names are what they are, or where they are looked for."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    for name, kind in (("tokenizer", "tokenizer.json"), ("model", "config.json"), ("checkpoint", "manifest.json")):
        (folder / name).mkdir()
        os.mkfifo(folder / name / kind)
    (folder / "zeros").mkdir()
    for kind in ("tokenizer.json", "config.json", "manifest.json"):
        (folder / "zeros" / kind).symlink_to("/dev/zero")
    (folder / "huge").mkdir()
    for kind in ("tokenizer.json", "config.json"):
        with (folder / "huge" / kind).open("wb") as file:
            file.truncate(1 << 40)
    (folder / "nested").mkdir()
    (folder / "nested" / "config.json").write_text("[" * 100_000)
    return folder


async def refused(api: httpx2.AsyncClient, spec: Spec) -> tuple[int, str, str]:
    """Status, code and field of a refusal, of a preview and of a submission alike."""
    answers = [await api.post(f"/v1/jobs{path}", json=spec) for path in ("/preview", "")]
    found = {(a.status_code, a.json()["code"], a.json()["errors"][0]["field"]) for a in answers}
    assert all(answer.json()["errors"][0]["remedy"] for answer in answers)
    assert len(found) == 1, [answer.text for answer in answers]
    return found.pop()


@pytest.mark.parametrize("name", ["fifo", "tokenizer", "zeros", "/dev/zero"])
async def test_a_tokenizer_that_is_no_file(api: httpx2.AsyncClient, hostile: Path, name: str) -> None:
    assert await refused(api, tokenizer(hostile / name)) == (422, "not_a_file", "train.data.tokenizer")


@pytest.mark.parametrize("name", ["fifo", "zeros/tokenizer.json", "/dev/zero", "tokenizer"])
async def test_text_that_is_no_file(api: httpx2.AsyncClient, hostile: Path, name: str) -> None:
    assert await refused(api, text(hostile / name)) == (422, "not_a_file", "train.data.files")


@pytest.mark.parametrize("name", ["model", "zeros"])
async def test_a_model_whose_config_is_no_file(api: httpx2.AsyncClient, hostile: Path, name: str) -> None:
    spec = train(model={"from": str(hostile / name)})
    assert await refused(api, spec) == (422, "not_a_file", "train.model.from")


@pytest.mark.parametrize("name", ["fifo", "nested/config.json"])
async def test_code_that_is_no_folder(api: httpx2.AsyncClient, hostile: Path, name: str) -> None:
    spec = train(model={"import": "mine:model", "code": str(hostile / name)})
    assert await refused(api, spec) == (422, "not_a_file", "train.model.code")


async def test_files_without_measure(api: httpx2.AsyncClient, hostile: Path) -> None:
    huge = hostile / "huge"
    assert await refused(api, tokenizer(huge)) == (422, "file_too_large", "train.data.tokenizer")
    assert (await refused(api, train(model={"from": str(huge)})))[2] == "train.model.from"
    assert (await refused(api, train(model={"from": str(hostile / "nested")})))[2] == "train.model.from"


@pytest.mark.parametrize("written", ["/**/**/**", "/**/*/**/*/**/*.none"])
async def test_a_pattern_over_the_whole_machine(
    api: httpx2.AsyncClient, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pattern, "MOST_NAMES", 20_000)
    monkeypatch.setattr(file_pattern, "MOST_MATCHES", 5_000)
    assert await refused(api, text(written)) == (422, "too_many_files", "train.data.files")


@pytest.mark.parametrize("content", ['{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"?"}}'])
async def test_a_tokenizer_that_fails_at_its_first_text(api: httpx2.AsyncClient, tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert (await refused(api, tokenizer(tmp_path)))[1:] == ("invalid_spec", "train.data.tokenizer")


def test_fifos_hold_up_neither_lists_nor_the_servers_end(plane: Plane, hostile: Path) -> None:
    """Opened as files, each of them would wait for a writer for ever, and so would all that uses asyncio's threads."""
    specs = [tokenizer(hostile / "fifo")] * 7 + [
        train(resume_from=str(hostile / name)) for name in ("checkpoint", "zeros")
    ]
    with ThreadPoolExecutor(len(specs)) as pool:
        answers = [pool.submit(ask, "POST", f"{plane.url}/v1/jobs", json=spec) for spec in specs]
        assert ask("GET", f"{plane.url}/v1/jobs").status_code == 200
        assert ask("POST", f"{plane.url}/v1/jobs", json=SPEC).status_code == 201
        assert {answer.result().status_code for answer in answers[:7]} == {422}
        assert {answer.result().status_code for answer in answers[7:]} == {409}
    plane.stop()
