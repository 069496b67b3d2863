"""Token caches: the tokens of a corpus under a tokenizer, made once per content, as a memory-mapped file.

Only a finished cache is used. Under a lock that is released when its holder dies, the tokens are written to a temporary file,
synced and renamed. The description with their checksum is written the same way, last. A reader uses a cache only if it has a
description and the tokens match it. The name is a hash of the content, not of paths or dates.
"""

import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from ..atomic_files import write_whole
from ..regular_files import opened
from ..spec import DataSpec
from .corpus import Source, documents, sources
from .errors import DataError
from .tokenizer import Ids, Tokenizer, load_tokenizer

#: Must change whenever the same corpus would become other tokens.
FORMAT = 1
#: Seconds to wait for another process that is preparing the same corpus.
LOCK_TIMEOUT_S = 6 * 3600.0
#: Tokens up to this size are compared with their checksum whenever they are opened; for larger ones only the size is compared.
_VERIFIED_BYTES = 64 << 20
#: The digest of a file at least this large is cached, and those of smaller ones if all are: a start does not read 10 GB to find its cache.
_REMEMBERED_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
#: Nanoseconds after which a file's dates are older than the clock's last ticks, whatever the file system.
_SETTLED_NS = 2_000_000_000

Stamp = tuple[int, ...]  # file status fields that change with a file's content


def _no_beat() -> None:
    """Nothing watches this process."""


class TokenFile(BaseModel):
    """The description of a token file: `tokens` ids of `dtype`, all below `vocab`, in `path`. `tokenizer`: the digest of its maker."""

    model_config = ConfigDict(frozen=True)

    key: str
    tokenizer: str
    path: Path
    dtype: str
    vocab: int
    tokens: int
    sha256: str

    def map(self) -> NDArray[Any]:
        """The token ids, memory-mapped read-only."""
        return np.asarray(np.memmap(self.path, dtype=self.dtype, mode="r", shape=(self.tokens,)))


def prepare(spec: DataSpec, cache: Path, beat: Callable[[], None] = _no_beat) -> TokenFile:
    """The tokens of a corpus, from the cache or into it. May be called by many processes at once. Raises `DataError`.

    `beat` is called for each block that is read or written, and while another process has the lock.
    """
    files, tokenizer = sources(spec), load_tokenizer(spec)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        before = [_stamp(source.path) for source in files]
        key = _key(files, tokenizer, cache, beat)
        if (found := _believed(cache, key)) is not None:
            return found
        with locked(cache / f"{key}.lock", beat=beat):
            return _believed(cache, key) or _write(files, tokenizer, cache / f"{key}.tokens", before, beat)
    except OSError as error:
        message = f"The token cache in {cache} cannot be made: {error.strerror} ({error.filename})."
        remedy = "Check its permissions and the disk's free space."
        raise DataError("cache_unwritable", message, remedy, "data") from error


@contextmanager
def locked(path: Path, timeout_s: float = LOCK_TIMEOUT_S, beat: Callable[[], None] = _no_beat) -> Iterator[None]:
    """Hold the lock on `path`. The kernel releases it when this process ends, however it ends. Raises `DataError`.

    `beat` is called in each turn of the wait for it.
    """
    deadline = time.monotonic() + timeout_s
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"Another process has held {path} for {timeout_s:.0f} s."
                    raise DataError(
                        "cache_busy", message, "Check whether that process still works, or end it.", "data"
                    ) from None
                beat()
                time.sleep(0.05)
        yield


def _believed(cache: Path, key: str) -> TokenFile | None:
    try:
        text = (cache / f"{key}.json").read_bytes()
        found = TokenFile.model_validate({**json.loads(text), "path": cache / f"{key}.tokens"})
        size = found.path.stat().st_size
    except (OSError, ValueError, TypeError, ValidationError):
        return None
    if size != found.tokens * np.dtype(found.dtype).itemsize:
        return None
    if size <= _VERIFIED_BYTES and _content_digest(found.path) != found.sha256:
        return None
    return found


def _write(
    files: list[Source], tokenizer: Tokenizer, path: Path, before: list[Stamp], beat: Callable[[], None]
) -> TokenFile:
    dtype = _dtype(tokenizer.vocab)
    digest, tokens = hashlib.sha256(), 0

    def blocks() -> Iterator[bytes]:
        nonlocal tokens
        for ids in token_ids(files, tokenizer):
            block = ids.astype(dtype, copy=False).tobytes()
            digest.update(block)
            tokens += len(ids)
            beat()
            yield block

    write_whole(path, blocks())
    if before != [_stamp(source.path) for source in files]:
        raise DataError("corpus_changed", "A file of the corpus changed while it was read.", "Start again.")
    found = TokenFile(
        key=path.stem,
        tokenizer=tokenizer.digest,
        path=path,
        dtype=dtype,
        vocab=tokenizer.vocab,
        tokens=tokens,
        sha256=digest.hexdigest(),
    )
    write_whole(path.with_suffix(".json"), [found.model_dump_json(exclude={"path"}).encode()])
    return found


def token_ids(files: Sequence[Source], tokenizer: Tokenizer) -> Iterator[Ids]:
    """Token ids of all documents with their separators, encoded about a mebibyte of text at a time."""
    batch: list[str | None] = []
    size = 0
    for source in files:
        for piece in documents(source):
            batch.append(piece)
            size += len(piece or "")
            if size >= _BLOCK_BYTES:
                yield from _encode(batch, tokenizer)
                batch, size = [], 0
    yield from _encode(batch, tokenizer)


def _encode(batch: list[str | None], tokenizer: Tokenizer) -> Iterator[Ids]:
    encoded = iter(tokenizer.encode([piece for piece in batch if piece is not None]))
    for piece in batch:
        yield tokenizer.separator if piece is None else next(encoded)


def _dtype(vocab: int) -> str:
    """The narrowest unsigned integer type, little-endian, that holds every id."""
    return next(name for name, limit in (("u1", 1 << 8), ("<u2", 1 << 16), ("<u4", 1 << 32)) if vocab <= limit)


def _key(files: list[Source], tokenizer: Tokenizer, cache: Path, beat: Callable[[], None]) -> str:
    digests = _digests([source.path for source in files], cache, beat)
    corpus = [[source.field, digest] for source, digest in zip(files, digests, strict=True)]
    return hashlib.sha256(json.dumps([FORMAT, tokenizer.digest, corpus]).encode()).hexdigest()[:32]


def _digests(paths: Sequence[Path], cache: Path, beat: Callable[[], None]) -> list[str]:
    """sha256 of each file's content. That of a large file is cached, and those of the others together if they are much to read."""
    sizes = {path: path.stat().st_size for path in paths}
    small = [path for path in paths if sizes[path] < _REMEMBERED_BYTES]
    together = [[path] for path in paths if sizes[path] >= _REMEMBERED_BYTES]
    if sum(sizes[path] for path in small) >= _REMEMBERED_BYTES:
        together.append(small)
    known: dict[Path, str] = {}
    for each in together:
        known |= zip(each, _remembered_digests(each, cache, beat), strict=True)
    return [known.get(path) or _source_digest(path, beat) for path in paths]


def _source_digest(path: Path, beat: Callable[[], None]) -> str:
    try:
        return _content_digest(path, beat)
    except OSError as error:
        raise DataError(
            "unreadable_file",
            f"{path} cannot be read: {error.strerror}.",
            "Check that the file exists and that this process may read it.",
        ) from error


def _remembered_digests(paths: Sequence[Path], cache: Path, beat: Callable[[], None]) -> list[str]:
    """Those of these files, from the cache or into it, under their paths and stamps.

    Of one process at a time, for the others then have them. Files that were just written have a moment to settle; where they do not, or are
    of the future, each process reads them itself, at once.
    """
    stamps = [_stamp(path) for path in paths]
    if 0 < (rest := _unsettled_ns(stamps)) <= _SETTLED_NS:
        beat()
        time.sleep(rest / 1e9)
        stamps = [_stamp(path) for path in paths]
    known = [[str(path.resolve()), *stamp] for path, stamp in zip(paths, stamps, strict=True)]
    name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
    memory = cache / f"{name}.sha256"
    if memory.exists():
        return memory.read_text().split()
    if _unsettled_ns(stamps) > 0:
        return [_source_digest(path, beat) for path in paths]
    with locked(cache / f"{name}.lock", beat=beat):
        if memory.exists():
            return memory.read_text().split()
        digests = [_source_digest(path, beat) for path in paths]
        if [_stamp(path) for path in paths] == stamps:
            write_whole(memory, ["\n".join(digests).encode()])
        return digests


def _unsettled_ns(stamps: Sequence[Stamp]) -> int:
    """For how long a file of these stamps could change again with the same one, as within the clock's last ticks after it was written.

    A date of modification in the future was set, as by unpacking. That of the status then shows when.
    """
    now = time.time_ns()
    dates = (max(changed, modified if modified <= now else 0) for *_, modified, changed in stamps)
    return max(dates) + _SETTLED_NS - now


def _content_digest(path: Path, beat: Callable[[], None] = _no_beat) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            beat()
    return digest.hexdigest()


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
