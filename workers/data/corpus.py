"""Reads the text of a corpus as a stream of documents in a fixed order.

The same files give the same text in the same order on every machine, and only the current chunk is held in memory. A plain text
file is one document; so is each record of a JSONL file. Imports no torch: the API checks a spec with `sources`.
"""

import glob
import json
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from ..regular_files import UnfitFile, opened
from ..spec import DataSpec
from .errors import DataError
from .file_pattern import matching

#: Plain text is read in chunks of about this number of bytes, split after a line's end if there is one.
PIECE_BYTES = 1 << 20

#: How the names of files of records end, in any case.
RECORDS: Final = (".jsonl", ".ndjson")
#: First bytes of files that are often taken for text → what they are.
_NO_TEXT: Final = {
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
}

#: Folders of the standard library left out of `python-stdlib`: installed packages, its tests (some are not even UTF-8), and generated
#: tables.
#: About 10 MB of source written by people remain.
_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "pydoc_data"}
)


@dataclass(frozen=True)
class Source:
    """One file. `field` names the text's field in each JSONL record; None is plain text."""

    path: Path
    field: str | None = None


def sources(spec: DataSpec, until: float = inf, beat: Callable[[], None] = lambda: None) -> list[Source]:
    """The files of a corpus in reading order; reads none of them. Raises `DataError`, also if it takes past `until` (`time.monotonic`).

    `python-stdlib` is sorted by relative path. `text` keeps the order of `files`, sorts a glob's matches, and returns no file twice.
    `beat` is called for each entry of `files` and each file: a file system may take long to answer for 100,000 of them.
    """
    try:
        found = _stdlib() if spec.source == "python-stdlib" else _text_files(spec, until, beat)
        size = sum(_size(source.path, beat) for source in found)
    except OSError as error:
        raise _unreadable(error) from error
    if size == 0:
        raise DataError("empty_corpus", "The corpus holds no text.", "Name files that are not empty.")
    return found


def _size(path: Path, beat: Callable[[], None]) -> int:
    beat()
    return path.stat().st_size


def documents(source: Source) -> Iterator[str | None]:
    """The source's text in chunks, and None after each document's last chunk. Skips empty documents. Raises `DataError`."""
    try:
        yield from _lines(source.path) if source.field is None else _records(source.path, source.field)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> DataError:
    if isinstance(error, UnfitFile):
        return DataError(error.code, error.message, error.remedy)
    message = f"{error.filename} cannot be read: {error.strerror}."
    return DataError("unreadable_file", message, "Check that the file exists and that this process may read it.")


def _stdlib() -> list[Source]:
    root = Path(sysconfig.get_paths()["stdlib"])
    files: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    if not files:
        raise DataError(
            "empty_corpus",
            f"This Python has no standard library sources at {root}.",
            "Use data.source: text with files of your own.",
            "data.source",
        )
    return [Source(path) for path in sorted(files, key=lambda path: path.relative_to(root).as_posix())]


def _text_files(spec: DataSpec, until: float, beat: Callable[[], None]) -> list[Source]:
    paths = list(dict.fromkeys(path for entry in spec.files for path in _expand(entry, until, beat)))
    records = [path for path in paths if _has_records(path)]
    if records and spec.field is None:
        raise DataError(
            "field_required",
            f"{records[0]} is JSONL and data.field is not set.",
            "Name the field of its records that holds the text, for example field: text.",
            "data.field",
        )
    if spec.field is not None and not records:
        raise DataError(
            "field_unused",
            f"data.field is {spec.field!r}, but none of the files ends in {' or '.join(RECORDS)}.",
            "Leave out data.field for plain text, or name files of JSON lines, uncompressed.",
            "data.field",
        )
    return [Source(path, spec.field if _has_records(path) else None) for path in paths]


def _has_records(path: Path) -> bool:
    return path.suffix.lower() in RECORDS


def _expand(entry: str, until: float, beat: Callable[[], None]) -> list[Path]:
    """The files of one entry of `files`: the path itself if it exists, else the matches of a glob (`**` matches folders at any depth)."""
    beat()
    path = Path(entry).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        remedy = f"For a folder use a glob: {entry.rstrip('/')}/**/*.txt"
        raise DataError("not_a_file", f"{entry} is a folder.", remedy)
    if path.exists():
        raise DataError(
            "not_a_file", f"{entry} is not a regular file.", "Name regular files: no FIFO, device or socket."
        )
    if not glob.has_magic(entry):
        raise DataError(
            "missing_file",
            f"{entry} does not exist.",
            "Paths are those of the machines that train. Check the spelling.",
        )
    files = matching(str(path), until)
    if not files:
        raise DataError("no_match", f"No file matches {entry}.", "Check the pattern. ** matches folders at any depth.")
    return files


def _lines(path: Path) -> Iterator[str | None]:
    offset, rest = 0, b""
    with opened(path) as file:
        while block := file.read(PIECE_BYTES):
            data = rest + block
            cut = data.rfind(b"\n") + 1 or _whole_characters(data)
            yield _decode(data[:cut], path, offset)
            offset, rest = offset + cut, data[cut:]
    if rest:
        yield _decode(rest, path, offset)
    if offset or rest:
        yield None


def _whole_characters(data: bytes) -> int:
    """The largest number of leading bytes that ends between two UTF-8 characters."""
    end = len(data)
    while end and len(data) - end < 3 and 0x80 <= data[end - 1] < 0xC0:
        end -= 1
    return end - 1 if end and data[end - 1] >= 0xC0 else len(data)


def _decode(data: bytes, path: Path, offset: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if (kind := _kind(path)) is not None:
            remedy = "Write its text to .txt files, or one JSON object per line to .jsonl files."
            raise DataError("invalid_utf8", f"{path} is {kind}, not text.", remedy) from error
        raise DataError(
            "invalid_utf8",
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {offset + error.start} ({error.reason}).",
            "Convert the file to UTF-8, for example with iconv.",
        ) from error


def _kind(path: Path) -> str | None:
    """What a file that is no text is, as its first bytes show."""
    with opened(path) as file:
        first = file.read(8)
    return next((kind for magic, kind in _NO_TEXT.items() if first.startswith(magic)), None)


def _records(path: Path, field: str) -> Iterator[str | None]:
    offset = 0
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip() and (text := _text_of(_decode(line, path, offset), f"{path}, line {number}", field)):
                yield text
                yield None
            offset += len(line)


def _text_of(line: str, where: str, field: str) -> str:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError("invalid_jsonl", f"{where}: not valid JSON ({error}).", "One JSON object per line.") from error
    if not isinstance(record, dict) or field not in record:
        has = f"fields {', '.join(map(repr, list(record)[:8]))}" if isinstance(record, dict) else type(record).__name__
        raise DataError(
            "missing_field", f"{where}: no field {field!r}; it has {has}.", "Change data.field.", "data.field"
        )
    text = record[field]
    if not isinstance(text, str):
        kind = type(text).__name__
        raise DataError(
            "not_text", f"{where}: field {field!r} is {kind}, not a string.", "Name a field of text.", "data.field"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError("invalid_utf8", f"{where}: {error.reason}.", "Remove the lone surrogate escape.") from error
    return text
