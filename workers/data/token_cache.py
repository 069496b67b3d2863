"""Token caches: the tokens of a corpus under a tokenizer, made once per content, as a memory-mapped file.

Only a finished cache is used. Under a lock that is released when its holder dies, the tokens are written to a temporary file,
synced and renamed. The description with their checksum is written the same way, last. A reader uses a cache only if it has a
description and the tokens match it. The name is a hash of the content, not of paths or dates.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

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
#: Seconds to wait for another process that is preparing the same corpus and makes no progress.
LOCK_TIMEOUT_S = 6 * 3600.0
#: Minimum seconds between two signs of progress of a lock's holder: a new date of the lock's file.
SIGN_S = 1.0
#: Tokens up to this size are compared with their checksum whenever they are opened; for larger ones only the size is compared.
_VERIFIED_BYTES = 64 << 20
#: The digest of a file at least this large is cached, and those of smaller ones if all are: a start does not read 10 GB to find its cache.
_REMEMBERED_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
#: The most texts of this size that are encoded at once, each on a core of its own. The encodings of one take about 100 MB.
_MOST_TEXTS = 8
#: Nanoseconds after which a file's dates are older than the clock's last ticks, whatever the file system.
_SETTLED_NS = 2_000_000_000

#: Errors of a cache that others have prepared, and that this process may only read.
READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)

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


def prepare(
    spec: DataSpec, cache: Path, beat: Callable[[], None] = _no_beat, tokenizer: Tokenizer | None = None
) -> TokenFile:
    """The tokens of a corpus, from the cache or into it. May be called by many processes at once. Raises `DataError`.

    `beat` is called for each block that is read or written, and while another process has the lock. `tokenizer`: that of `spec`.
    """
    files, tokenizer = sources(spec, beat=beat), tokenizer or load_tokenizer(spec)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        before = _stamps([source.path for source in files], beat)
        key = _key(files, tokenizer, cache, beat)
        if (found := _believed(cache, key)) is not None:
            return found
        with locked(cache / f"{key}.lock", beat=beat) as alive:
            return _believed(cache, key) or _write(files, tokenizer, cache / f"{key}.tokens", before, alive)
    except OSError as error:
        raise unwritable(cache, error) from error


def unwritable(cache: Path, error: OSError) -> DataError:
    """The error for a cache in which a file cannot be made."""
    message = f"The token cache in {cache} cannot be made: {error.strerror} ({error.filename})."
    return DataError("cache_unwritable", message, "Check its permissions and the disk's free space.", "data")


@contextmanager
def locked(
    path: Path, timeout_s: float = LOCK_TIMEOUT_S, beat: Callable[[], None] = _no_beat
) -> Iterator[Callable[[], None]]:
    """Hold the lock on `path`. The kernel releases it when this process ends, however it ends. Raises `DataError`.

    `beat` is called in each turn of the wait for it. The holder calls what this yields, which beats and shows those that wait that it makes
    progress: they give up after `timeout_s` without any.
    """
    with path.open("ab") as file:
        _take(file, path, timeout_s, beat)
        signed = time.monotonic()

        def alive() -> None:
            nonlocal signed
            beat()
            if time.monotonic() - signed >= SIGN_S:
                os.utime(file.fileno())
                signed = time.monotonic()

        yield alive


def _take(file: BinaryIO, path: Path, timeout_s: float, beat: Callable[[], None]) -> None:
    """Wait for the lock. Dates of the file are compared with each other only, as another machine's clock may have set them."""
    sign, since = 0, time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if (now := os.fstat(file.fileno()).st_mtime_ns) != sign:
                sign, since = now, time.monotonic()
            if time.monotonic() - since > timeout_s:
                message = f"Another process holds {path}, and has made no progress for {timeout_s:.0f} s."
                remedy = "Check whether that process still works, or end it."
                raise DataError("cache_busy", message, remedy, "data") from None
            beat()
            time.sleep(0.05)


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
    if before != _stamps([source.path for source in files], beat):
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
    """Token ids of all documents with their separators, encoded about a mebibyte of text at a time for each core."""
    batch: list[str | None] = []
    cores = min(len(os.sched_getaffinity(0)), _MOST_TEXTS)
    size, most = 0, _BLOCK_BYTES * (2 * cores + 1) // 2  # room for pieces that are a line longer, and none for one more
    for source in files:
        for piece in documents(source):
            if batch and size + len(piece or "") > most:
                yield from _encode(batch, tokenizer)
                batch, size = [], 0
            batch.append(piece)
            size += len(piece or "")
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
    sizes = {path: size for path, (_, size, *_) in zip(paths, _stamps(paths, beat), strict=True)}
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
    stamps = _stamps(paths, beat)
    if 0 < (rest := _unsettled_ns(stamps)) <= _SETTLED_NS:
        beat()
        time.sleep(rest / 1e9)
        stamps = _stamps(paths, beat)
    known = [[str(path.resolve()), *stamp] for path, stamp in zip(paths, stamps, strict=True)]
    name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
    memory = cache / f"{name}.sha256"
    if memory.exists():
        return memory.read_text().split()
    if _unsettled_ns(stamps) > 0:
        return [_source_digest(path, beat) for path in paths]
    try:
        return _remember(memory, paths, stamps, cache / f"{name}.lock", beat)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        return [_source_digest(path, beat) for path in paths]  # its tokens may be there, under their content's key


def _remember(
    memory: Path, paths: Sequence[Path], stamps: list[Stamp], lock: Path, beat: Callable[[], None]
) -> list[str]:
    """The digests, from `memory` or into it. Raises OSError, `DataError`."""
    with locked(lock, beat=beat) as alive:
        if memory.exists():
            return memory.read_text().split()
        digests = [_source_digest(path, alive) for path in paths]
        if _stamps(paths, alive) == stamps:
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


def _stamps(paths: Sequence[Path], beat: Callable[[], None]) -> list[Stamp]:
    """`beat` is called for each file, of which a slow file system may have 100,000."""
    found: list[Stamp] = []
    for path in paths:
        beat()
        status = path.stat()
        found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return found
