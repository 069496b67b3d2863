"""Files of the Hub by the real library, from a server of the tests and from the library's cache."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from harness.hub import Hub, Repository, running_hub

from shardyard.workers.program.files import hub_remote as module
from shardyard.workers.program.files.errors import NOT_FETCHED, UNREACHABLE, FilesNotFetched
from shardyard.workers.program.files.hub_remote import HubRemote
from shardyard.workers.program.files.listing import Listing, RemoteFile
from shardyard.workers.program.files.remote import Damaged, Unanswered
from shardyard.workers.program.files.source import parse

OLD, NEW = "a" * 40, "b" * 40
WEIGHTS: Final = bytes(range(256)) * 8


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A model with two commits, and a private dataset."""
    with running_hub() as found:
        files = {"config.json": b"{}", "onnx/weights.bin": WEIGHTS}
        model = Repository({OLD: files, NEW: {**files, "config.json": b"{1}"}}, {"main": NEW, "v1": OLD})
        model.large = frozenset({"onnx/weights.bin"})
        found.repositories["org/model"] = model
        found.repositories["datasets/org/private"] = Repository({OLD: {"a.txt": b"1"}}, {"main": OLD}, token="hf_x")
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield found


def remote(text: str) -> HubRemote:
    return HubRemote(parse(text))


def content(source: HubRemote, listing: Listing, file: RemoteFile) -> bytes:
    """The whole file, checked."""
    half = file.bytes // 2
    found = source.read(listing, file, 0, half) + source.read(listing, file, half, file.bytes)
    digest = source.digest(file)
    digest.update(found)
    source.verify(file, digest.hexdigest())
    return found


def test_a_branch_is_pinned_to_its_commit(hub: Hub) -> None:
    """All pages of the listing count."""
    hub.page = 1
    source = remote("hf://org/model")
    listing = source.listing()
    assert (listing.revision, listing.single) == (NEW, False)
    assert [file.path for file in listing.files] == ["config.json", "onnx/weights.bin"]
    assert listing.files[1].check == f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
    hub.repositories["org/model"].refs["main"] = OLD
    assert [content(source, listing, file) for file in listing.files] == [b"{1}", WEIGHTS]


def test_a_folder_and_a_file_of_a_revision(hub: Hub) -> None:
    folder = remote("hf://org/model@v1/onnx").listing()
    assert [(file.path, file.name) for file in folder.files] == [("weights.bin", "onnx/weights.bin")]
    source = remote("hf://org/model@v1/onnx/weights.bin")
    one = source.listing()
    assert one.single and one.revision == OLD and content(source, one, one.files[0]) == WEIGHTS
    assert sum(hub.asked.values()) == 7


def test_an_endpoint_may_end_with_a_slash(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/")
    source = remote("hf://org/model/config.json")
    listing = source.listing()
    assert content(source, listing, listing.files[0]) == b"{1}"


def test_other_bytes_are_damage(hub: Hub) -> None:
    source = remote("hf://org/model")
    for file in source.listing().files:
        with pytest.raises(Damaged):
            source.verify(file, hashlib.sha256(b"other").hexdigest())


def test_a_private_repository_needs_the_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        FilesNotFetched, match=r"no such repository, or it is private; .*the secret HF_TOKEN"
    ) as refused:
        remote("hf://datasets/org/private").listing()
    assert refused.value.cause == NOT_FETCHED
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    source = remote("hf://datasets/org/private")
    listing = source.listing()
    assert content(source, listing, listing.files[0]) == b"1"


def test_a_server_without_ranges_is_no_source_of_large_files(hub: Hub) -> None:
    """A whole file in each answer would fill the memory. One that is read at once may come so."""
    source = remote("hf://org/model")
    hub.ranges = False
    listing = source.listing()
    small, large = listing.files
    assert source.read(listing, small, 0, small.bytes) == b"{1}"
    with pytest.raises(FilesNotFetched, match=r"onnx/weights.bin: the server sends no ranges of bytes"):
        source.read(listing, large, 0, 8)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hf://org/model@v9", "no such revision"),
        ("hf://org/model/lost.bin", "no such file"),
        ("hf://org/other", "no such repository"),
        ("hf://org/a--b", "correct the source"),
    ],
)
def test_what_is_not_there_is_final(hub: Hub, text: str, why: str) -> None:
    with pytest.raises(FilesNotFetched, match=f"^{text}.*{why}") as refused:
        remote(text).listing()
    assert refused.value.cause == NOT_FETCHED


def test_a_hub_that_does_not_answer_may_later(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    source = remote("hf://org/model")
    listing = source.listing()
    hub.failing = 1
    with pytest.raises(FilesNotFetched, match=r"config.json: the Hub answers with status 503") as failed:
        source.read(listing, listing.files[0], 0, 2)
    assert failed.value.cause == UNREACHABLE
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FilesNotFetched, match="the Hub does not answer") as failed:
        remote("hf://org/model").listing()
    assert failed.value.cause == UNREACHABLE


@pytest.mark.parametrize(
    ("limits", "wait_s"),
    [
        ({"RateLimit": '"resolvers";r=0;t=250'}, 251.0),
        ({"Retry-After": "20"}, 21.0),
        ({"RateLimit": '"resolvers";r=7;t=250', "Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "9" * 9}, 600.0),
    ],
)
def test_a_limit_of_requests_says_when_to_try_again(hub: Hub, limits: dict[str, str], wait_s: float) -> None:
    hub.limits = limits
    with pytest.raises(Unanswered, match="status 429") as failed:
        remote("hf://org/model").listing()
    assert failed.value.wait_s == wait_s


@pytest.mark.parametrize(("text", "what"), [("hf://org/model", "tree"), ("hf://org/model/onnx", "paths-info")])
def test_a_listing_that_is_never_sent_ends_by_the_time_out(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    hub.gates[what] = threading.Event()
    try:
        with pytest.raises(FilesNotFetched, match="the Hub does not answer") as failed:
            remote(text).listing()
    finally:
        hub.gates[what].set()
    assert failed.value.cause == UNREACHABLE


def test_the_cache_of_the_library_counts(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online and offline: the files of the commit stay where they are, and offline no request is sent."""
    from huggingface_hub import constants

    cache = tmp_path / "models--org--model"
    source = remote("hf://org/model@main")
    online = source.listing()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert source.cached(online) is None
    for file in online.files:
        blob = cache / "blobs" / file.check.partition(":")[2]
        path = cache / "snapshots" / NEW / file.path
        for folder in (blob.parent, path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(WEIGHTS if file.bytes > 3 else b"{1}")
        path.symlink_to(blob)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(NEW)
    asked = sum(hub.asked.values())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = source.listing()
    assert (offline.revision, set(offline.files)) == (NEW, set(online.files))
    found = source.cached(offline)
    assert found is not None and (found / "onnx/weights.bin").read_bytes() == WEIGHTS
    (cache / "snapshots" / NEW / "config.json").unlink()
    assert source.cached(offline) is None
    with pytest.raises(FilesNotFetched, match=r"config.json at commit b+ is not in this node's Hugging Face cache"):
        source.read(offline, online.files[0], 0, 1)
    for text in ("hf://org/other", "hf://org/a--b"):
        with pytest.raises(FilesNotFetched, match="not in this node's Hugging Face cache, and HF_HUB_OFFLINE is set"):
            remote(text).listing()
    assert sum(hub.asked.values()) == asked
