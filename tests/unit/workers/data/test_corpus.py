import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.workers.data import corpus
from shardyard.workers.data.corpus import Source, documents, sources
from shardyard.workers.data.errors import DataError
from shardyard.workers.spec import DataSpec


def text(*files: object, field: str | None = None) -> DataSpec:
    return DataSpec(source="text", files=[str(file) for file in files], field=field)


def refusal(spec: DataSpec) -> DataError:
    with pytest.raises(DataError) as caught:
        for source in sources(spec):
            for _ in documents(source):
                pass
    assert caught.value.remedy
    return caught.value


def read(source: Source) -> list[str]:
    """The documents, whole."""
    found, parts = [], []
    for piece in documents(source):
        if piece is None:
            found.append("".join(parts))
            parts = []
        else:
            parts.append(piece)
    assert not parts
    return found


def test_the_standard_library_is_there_in_a_fixed_order() -> None:
    files = [source.path for source in sources(DataSpec())]
    assert {"ast.py", "decoder.py", "typing.py"} <= {path.name for path in files}
    assert not {"site-packages", "test", "tests"} & {part for path in files for part in path.parts[-3:]}
    assert files == [source.path for source in sources(DataSpec())]
    assert 5_000_000 < sum(path.stat().st_size for path in files) < 20_000_000


def test_every_file_of_the_standard_library_is_text() -> None:
    for source in sources(DataSpec()):
        for _ in documents(source):
            pass


def test_files_keep_their_order_globs_are_sorted_and_nothing_is_read_twice(tmp_path: Path) -> None:
    for name in ("c.txt", "a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    found = sources(text(tmp_path / "c.txt", tmp_path / "*.txt"))
    assert [source.path.name for source in found] == ["c.txt", "a.txt", "b.txt"]


def test_a_glob_goes_through_folders(tmp_path: Path) -> None:
    deep = tmp_path / "x" / "y"
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    assert {s.path.name for s in sources(text(tmp_path / "**" / "*.txt"))} == {"a.txt", "b.txt"}


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    (tmp_path / "part[1].txt").write_text("a")
    assert sources(text(tmp_path / "part[1].txt"))[0].path.name == "part[1].txt"


@settings(deadline=None)
@given(st.text(max_size=40), st.integers(1, 7))
def test_a_file_comes_back_whole_however_it_is_cut(tmp_path_factory, content: str, piece_bytes: int) -> None:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "PIECE_BYTES", piece_bytes)
        assert read(Source(path)) == ([content] if content else [])


def test_pieces_end_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a line of text\n" * 200_000)
    pieces = [piece for piece in documents(Source(path)) if piece is not None]
    assert len(pieces) > 2
    assert all(piece.endswith("\n") for piece in pieces)


def test_each_jsonl_record_is_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "eins\\nzwei"}\n\n{"n": 1, "text": ""}\n{"text": "drei"}')
    assert read(sources(text(path, field="text"))[0]) == ["eins\nzwei", "drei"]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("{", "invalid_jsonl", "line 2: not valid JSON"),
        ("[" * 100_000, "invalid_jsonl", "line 2"),
        ('{"body": "x", "id": 1}', "missing_field", "line 2: no field 'text'; it has fields 'body', 'id'"),
        ("[1]", "missing_field", "it has list"),
        ('{"text": 5}', "not_text", "line 2: field 'text' is int"),
        ('{"text": "\\ud800"}', "invalid_utf8", "line 2: surrogates not allowed"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path: Path, line: str, code: str, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"text": "good"}) + "\n" + line + "\n")
    error = refusal(text(path, field="text"))
    assert error.code == code
    assert says in error.message
    assert str(path) in error.message


@pytest.mark.parametrize(("name", "field"), [("a.txt", None), ("a.jsonl", "text")])
def test_what_is_not_utf8_is_named_by_file_and_offset(tmp_path: Path, name: str, field: str | None) -> None:
    path = tmp_path / name
    good = b'{"text": "gr\xc3\xbc\xc3\x9fe"}\n' * 100_000
    path.write_bytes(good + b'{"text": "gr\xfc\xdfe"}\n')
    error = refusal(text(path, field=field))
    assert error.code == "invalid_utf8"
    assert f"byte 0xfc at offset {len(good) + 12} " in error.message


def test_a_character_cut_by_the_files_end_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"gr" + "ü".encode()[:1])
    assert "offset 2 (unexpected end of data)" in refusal(text(path)).message


def test_refusals_of_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "a.txt").write_text("a")
    cases = {
        "missing_file": text(tmp_path / "none.txt"),
        "no_match": text(tmp_path / "*.md"),
        "not_a_file": text(tmp_path),
        "empty_corpus": text(tmp_path / "empty.txt"),
        "field_required": text(tmp_path / "a.jsonl"),
        "field_unused": text(tmp_path / "a.txt", field="text"),
        "unreadable_file": text("x" * 5000),
    }
    assert {code: refusal(spec).code for code, spec in cases.items()} == {code: code for code in cases}
    assert refusal(text("nul\0byte*")).code in {"no_match", "missing_file"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("a")
    path.chmod(0)
    assert refusal(text(path)).code == "unreadable_file"


@pytest.mark.parametrize("name", ["a.ndjson", "a.JSONL", "a.NdJson"])
def test_records_are_known_by_any_of_their_names(tmp_path: Path, name: str) -> None:
    """Their raw JSON is never trained on as if it were text."""
    (tmp_path / "b.jsonl").write_text('{"text": "eins"}')
    (tmp_path / name).write_text('{"text": "zwei"}')
    found = sources(text(tmp_path / "b.jsonl", tmp_path / name, field="text"))
    assert [read(source) for source in found] == [["eins"], ["zwei"]]
    assert refusal(text(tmp_path / name)).code == "field_required"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "compressed with gzip"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd\x04", "compressed with zstd"),
        ("a.txt", b"\xfd7zXZ\0", "compressed with xz"),
        ("a.jsonl", b"BZh91AY&SY\xff", "compressed with bzip2"),
        ("a.zip", b"PK\x03\x04\x0a\xff", "a zip archive"),
        ("a.parquet", b"PAR1" + b" \n" * 1_000_000 + b"\xff", "a Parquet file"),
    ],
    ids=["gzip", "zstd", "xz", "bzip2", "zip", "parquet"],
)
def test_a_file_that_is_no_text_is_called_what_it_is(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(content)
    error = refusal(text(tmp_path / name, field="text" if name.endswith(".jsonl") else None))
    assert error.code == "invalid_utf8" and error.message == f"{tmp_path / name} is {kind}, not text."
    assert "iconv" not in error.remedy
