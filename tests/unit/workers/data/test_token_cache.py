"""The cache under the worst that can happen to it: many processes at once, and death at any line."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.data import corpus as corpus_files
from shardyard.workers.data import token_cache
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.token_cache import locked, prepare
from shardyard.workers.data.tokenizer import ByteTokenizer, Ids
from shardyard.workers.spec import DataSpec

CONTENT = "äbc\n" * 1000

PREPARE = """
import sys
from pathlib import Path
from shardyard.workers.data.token_cache import prepare
from shardyard.workers.spec import DataSpec
found = prepare(DataSpec(source="text", files=[sys.argv[1]]), Path(sys.argv[2]))
print(found.key, found.tokens, found.path.stat().st_ino)
"""

#: Dies by SIGKILL at the n-th call of fsync: tokens written, tokens renamed, description written, description renamed.
DIE = """
import os, signal, sys
real, calls = os.fsync, 0
def fsync(fd):
    global calls
    calls += 1
    real(fd)
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(CONTENT)
    return path


def spec(*files: Path, **more: object) -> DataSpec:
    return DataSpec(source="text", files=[str(file) for file in files], **more)


def expected() -> np.ndarray:
    return np.frombuffer(CONTENT.encode() + b"\n", dtype=np.uint8)


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_tokens_are_the_text_with_a_separator_after_each_document(corpus: Path, tmp_path: Path) -> None:
    found = prepare(spec(corpus), tmp_path / "cache")
    assert np.array_equal(found.map(), expected())
    assert (found.dtype, found.vocab) == ("u1", 256)


def test_a_second_call_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    first = prepare(spec(corpus), tmp_path / "cache")
    inode = first.path.stat().st_ino
    assert prepare(spec(corpus), tmp_path / "cache") == first
    assert first.path.stat().st_ino == inode


def test_the_key_is_the_content_wherever_it_lies(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.txt"
    copy.write_text(CONTENT)
    key = prepare(spec(corpus), tmp_path / "cache").key
    assert prepare(spec(copy), tmp_path / "cache").key == key
    copy.write_text(CONTENT + "more")
    assert prepare(spec(copy), tmp_path / "cache").key != key


def test_the_key_knows_where_documents_end(tmp_path: Path) -> None:
    for name, content in {"ab": "ab", "a": "a", "b": "b"}.items():
        (tmp_path / name).write_text(content)
    one = prepare(spec(tmp_path / "ab"), tmp_path / "cache")
    two = prepare(spec(tmp_path / "a", tmp_path / "b"), tmp_path / "cache")
    assert bytes(one.map()) == b"ab\n"
    assert bytes(two.map()) == b"a\nb\n"


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "describe"])
def test_a_damaged_cache_is_made_again(corpus: Path, tmp_path: Path, damage: str) -> None:
    found = prepare(spec(corpus), tmp_path / "cache")
    content = found.path.read_bytes()
    if damage == "cut":
        found.path.write_bytes(content[:-1])
    if damage == "flip":
        found.path.write_bytes(b"\0" + content[1:])
    if damage == "remove":
        found.path.unlink()
    if damage == "describe":
        found.path.with_suffix(".json").write_text('{"key": ')
    assert np.array_equal(prepare(spec(corpus), tmp_path / "cache").map(), expected())


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_writer_may_be_killed_at_any_line(corpus: Path, tmp_path: Path, call: int) -> None:
    process = run(DIE + PREPARE, corpus, tmp_path / "cache", call)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, errors
    assert np.array_equal(prepare(spec(corpus), tmp_path / "cache").map(), expected())
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_processes_that_start_together_share_one_writing(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text(CONTENT * 2000)
    processes = [run(PREPARE, path, tmp_path / "cache") for _ in range(4)]
    try:
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert len({out for out, _ in outputs}) == 1
    assert str(5000 * 2000 + 1) in outputs[0][0]


def test_a_failed_reading_leaves_nothing_to_believe(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good\n\xff")
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            prepare(spec(path), tmp_path / "cache")
        assert caught.value.code == "invalid_utf8"
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".lock"}


def test_waiting_for_a_lock_has_an_end(tmp_path: Path) -> None:
    with locked(tmp_path / "x.lock"), pytest.raises(DataError) as caught, locked(tmp_path / "x.lock", timeout_s=0.1):
        pass
    assert caught.value.code == "cache_busy"


def test_each_block_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that reads and writes gigabytes is no hang."""
    monkeypatch.setattr(token_cache, "_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    beats: list[str] = []
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(CONTENT)
    read, documents = len(CONTENT.encode()) / 1024, token_cache.documents
    real = token_cache.write_whole
    monkeypatch.setattr(token_cache, "write_whole", lambda *given: (beats.append("write"), real(*given)))
    monkeypatch.setattr(token_cache, "documents", lambda source: (part for _ in range(9) for part in documents(source)))
    prepare(spec(corpus), tmp_path / "cache", lambda: beats.append("beat"))
    before, while_writing = beats.index("write"), beats[beats.index("write") :].count("beat")
    assert before >= read and while_writing >= 9


def test_a_process_that_waits_for_the_lock_beats(tmp_path: Path) -> None:
    beats: list[int] = []
    with (
        locked(tmp_path / "x.lock"),
        pytest.raises(DataError),
        locked(tmp_path / "x.lock", timeout_s=0.3, beat=lambda: beats.append(1)),
    ):
        pass
    assert len(beats) > 1


def test_a_holder_that_makes_progress_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus may take a day to tokenize."""
    monkeypatch.setattr(token_cache, "SIGN_S", 0.0)
    pause, clock, waited = time.sleep, [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def wait() -> None:
        clock[0] += 0.5
        waited.append(clock[0])
        pause(0.02)  # so that the next sign has another date
        if len(waited) < 10:
            alive()

    with (
        locked(tmp_path / "x.lock") as alive,
        pytest.raises(DataError) as caught,
        locked(tmp_path / "x.lock", timeout_s=1.2, beat=wait),
    ):
        pass
    assert caught.value.code == "cache_busy" and "no progress" in caught.value.message
    assert len(waited) >= 10


def test_each_file_beats_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow file system may take minutes to show the sizes and dates of 100,000 files."""
    (tmp_path / "corpus").mkdir()
    for number in range(9):
        (tmp_path / "corpus" / f"{number}.txt").write_text("ab")
    beats, before = list[int](), list[int]()
    usual = token_cache._content_digest
    monkeypatch.setattr(
        token_cache, "_content_digest", lambda path, *rest: (before.append(len(beats)), usual(path, *rest))[1]
    )
    prepare(spec(tmp_path / "corpus" / "*.txt"), tmp_path / "cache", lambda: beats.append(1))
    assert before[0] >= 3 * 9, "for its size, and twice for its date"


@pytest.mark.parametrize(("cores", "texts"), [(1, 1), (4, 4), (1000, 8)])
def test_as_many_texts_are_encoded_at_once_as_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, texts: int
) -> None:
    for module, size in ((corpus_files, "PIECE_BYTES"), (token_cache, "_BLOCK_BYTES")):
        monkeypatch.setattr(module, size, 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    (tmp_path / "corpus.txt").write_text("abc\n" * 64)
    at_once = list[int]()

    class Counting(ByteTokenizer):
        def encode(self, texts: Sequence[str]) -> list[Ids]:
            at_once.append(len(texts))
            return super().encode(texts)

    ids = list(token_cache.token_ids([corpus_files.Source(tmp_path / "corpus.txt")], Counting()))
    assert max(at_once) == at_once[0] == texts
    assert bytes(np.concatenate(ids)) == b"abc\n" * 64 + b"\n"


def test_a_cache_that_cannot_be_made_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError) as caught:
        prepare(spec(corpus), tmp_path / "file" / "cache")
    assert caught.value.code == "cache_unwritable"


def test_a_large_files_digest_is_remembered_until_it_changes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)  # long after the file was written
    folder = tmp_path / "cache"
    key = prepare(spec(corpus), folder).key
    assert prepare(spec(corpus), folder).key == key
    assert len(list(folder.glob("*.sha256"))) == 1
    corpus.write_text(CONTENT.replace("c", "d"))
    os.utime(corpus, (1, 1))  # another stamp, though both may have been written within one tick of the clock
    assert prepare(spec(corpus), folder).key != key
    assert len(list(folder.glob("*.sha256"))) == 2


def test_digests_of_many_small_files_are_remembered_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank asks at each start and repair, and a corpus of files below 64 MiB may have a terabyte."""
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1000)
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)
    folder, sources, read = tmp_path / "cache", [tmp_path / name for name in ("a", "b", "c")], list[Path]()
    for source, size in zip(sources, (600, 600, 1200), strict=True):
        source.write_text(source.name * size)
    usual = token_cache._content_digest
    monkeypatch.setattr(token_cache, "_content_digest", lambda path, *rest: (read.append(path), usual(path, *rest))[1])
    key = prepare(spec(*sources), folder).key
    assert sorted(path for path in read if path in sources) == sources
    read.clear()
    assert prepare(spec(*sources), folder).key == key and not set(read) & set(sources)
    sources[1].write_text("d" * 600)
    os.utime(sources[1], (1, 1))
    assert prepare(spec(*sources), folder).key != key
    assert [path for path in read if path in sources] == sources[:2], "not the large one"


@pytest.mark.parametrize("remembered", [1, 1 << 20], ids=["large", "small"])
def test_a_source_that_cannot_be_read_is_not_taken_for_the_cache(
    remembered: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", remembered)
    monkeypatch.setattr(token_cache, "opened", failed)
    with pytest.raises(DataError, match="cannot be read") as caught:
        prepare(spec(corpus), tmp_path / "cache")
    assert caught.value.code == "unreadable_file"


def test_a_file_that_was_just_written_is_not_remembered(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    monkeypatch.setattr(time, "time_ns", lambda: corpus.stat().st_ctime_ns)  # on a slow machine, too
    prepare(spec(corpus), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.sha256"))


def test_files_of_which_one_has_a_date_in_the_future_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacking sets such dates. That of the file's status shows whether it was just written."""
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1000)
    sources = [tmp_path / name for name in ("a", "b")]
    for source in sources:
        source.write_text(source.name * 600)
    os.utime(sources[0], ns=(0, 2**62))
    last = max(source.stat().st_ctime_ns for source in sources)
    monkeypatch.setattr(time, "time_ns", lambda: last + 3 * 10**9)
    prepare(spec(*sources), tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*.sha256"))) == 1


def test_files_that_were_just_written_are_read_by_one_process_once_they_have_settled(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    clock, slept = [corpus.stat().st_ctime_ns + 1_500_000_000], list[float]()
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += round(seconds * 1e9)

    monkeypatch.setattr(time, "sleep", sleep)
    for _ in range(2):
        prepare(spec(corpus), tmp_path / "cache")
    assert slept[0] == 0.5 and len(list((tmp_path / "cache").glob("*.sha256"))) >= 1


def test_those_that_read_what_is_not_remembered_do_not_wait_for_each_other(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    monkeypatch.setattr(time, "time_ns", lambda: corpus.stat().st_ctime_ns - 60 * 10**9)  # a server's clock is ahead
    both, usual = Barrier(2, timeout=PATIENCE_S), token_cache._content_digest

    def digest(path: Path, *rest: Callable[[], None]) -> str:
        if path == corpus:
            both.wait()
        return usual(path, *rest)

    monkeypatch.setattr(token_cache, "_content_digest", digest)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: prepare(spec(corpus), tmp_path / "cache"), range(2))
    assert one == other


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for _ in range(96):
            file.write("a line of sixteen\n" * (1 << 16))
    rss = "import resource; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    grown = "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    lines = PREPARE.strip().split("\n")
    code = "\n".join([*lines[:4], rss, *lines[4:], grown])
    process = run(code, path, tmp_path / "cache")
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert int(out.split()[-1]) < 40, f"{path.stat().st_size >> 20} MiB of text took {out.split()[-1]} MiB"


def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    (tmp_path / "corpus.txt").write_text("a b a")
    for highest, dtype in ((300, "<u2"), (70_000, "<u4")):
        tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": highest, "[UNK]": 1}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        path = tmp_path / f"{highest}.json"
        tokenizer.save(str(path))
        found = prepare(spec(tmp_path / "corpus.txt", tokenizer=str(path)), tmp_path / "cache")
        assert found.dtype == dtype
        assert found.map().tolist() == [0, highest, 0]
        description = json.loads(found.path.with_suffix(".json").read_text())
        assert description["tokens"] == 3


def test_a_prepared_cache_that_may_only_be_read_serves_copies_of_its_corpus(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an image or of a mount, whose files have other inodes on each node: the cache does not know their digests."""
    monkeypatch.setattr(token_cache, "_REMEMBERED_BYTES", 1)
    cache, copy = tmp_path / "cache", tmp_path / "copy.txt"
    made = prepare(spec(corpus), cache)
    copy.write_text(CONTENT)

    def read_only(path: Path, **_: object) -> Iterator[None]:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(token_cache, "locked", read_only)
    assert prepare(spec(copy), cache) == made
    copy.write_text(CONTENT * 2)
    with pytest.raises(DataError, match="Read-only file system") as refused:
        prepare(spec(copy), cache)
    assert refused.value.code == "cache_unwritable"
