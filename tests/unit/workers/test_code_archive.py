"""Archives of code: equal files make an equal one, what is read is what was packed, and nothing is written outside its folder."""

import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from shardyard.workers.code_archive import (
    PART_BYTES,
    InvalidArchive,
    Manifest,
    check_members,
    deflated,
    inflated,
    manifest_of,
    pack,
    unpack,
)

Parts = tuple[Manifest, Callable[[int], bytes]]


def parts_of(file: io.BytesIO, files: int = 1) -> Parts:
    content, manifest = file.getvalue(), manifest_of(file, files)
    parts = [deflated(content[at : at + PART_BYTES]) for at in range(0, len(content), PART_BYTES)]
    return manifest, parts.__getitem__


def packed(folder: Path, names: list[str]) -> Parts:
    file = io.BytesIO()
    pack(folder, names, file)
    return parts_of(file, len(names))


def tar_of(*members: tuple[str, bytes, str, int], form: int = tarfile.PAX_FORMAT) -> Parts:
    """An archive of a hostile client: name, type, target of a link, bytes of content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, kind, target, size in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return parts_of(file)


def test_what_is_unpacked_is_what_was_packed(tmp_path: Path) -> None:
    """Of several parts, with long and foreign names, links, modes and an empty file."""
    source = tmp_path / "source"
    (source / "pkg" / "sub").mkdir(parents=True)
    (source / "pkg/sub/big.bin").write_bytes(os.urandom(2 * PART_BYTES + 5))
    (source / "pkg/empty.py").touch()
    (source / ("long" * 50 + "-größe.py")).write_text("print(1)")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o750)
    (source / "pkg/sub/link").symlink_to("../empty.py")
    os.link(source / "run.sh", source / "same.sh")
    names = sorted(str(path.relative_to(source)) for path in source.rglob("*") if not path.is_dir())
    manifest, read = packed(source, names)
    manifest.check()
    check_members(manifest, read)
    unpack(manifest, read, tmp_path / "copy")
    for name in names:
        assert (tmp_path / "copy" / name).read_bytes() == (source / name).read_bytes(), name
    assert (tmp_path / "copy/pkg/sub/link").readlink() == Path("../empty.py")
    modes = [(tmp_path / "copy" / name).stat().st_mode & 0o777 for name in ("run.sh", "same.sh", "pkg/empty.py")]
    assert modes == [0o755, 0o755, 0o644]


def test_equal_files_are_the_same_archive(tmp_path: Path) -> None:
    """Whatever their times, their order and the umask are."""
    for name, time in (("a", 1e9), ("b", 1.5e9)):
        (tmp_path / name / "pkg").mkdir(parents=True)
        for file in ("pkg/x.py", "y.py"):
            (tmp_path / name / file).write_text(file)
            os.utime(tmp_path / name / file, (time, time))
    (tmp_path / "b/y.py").chmod(0o600)
    first, _ = packed(tmp_path / "a", ["pkg/x.py", "y.py"])
    second, _ = packed(tmp_path / "b", ["y.py", "pkg/x.py"])
    assert first.digest == second.digest
    (tmp_path / "b/y.py").write_text("other")
    assert packed(tmp_path / "b", ["y.py", "pkg/x.py"])[0].digest != first.digest


REG, DIR, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("../x", REG, "", 1)], "not a path inside"),
        ([("/etc/x", REG, "", 1)], "not a path inside"),
        ([("a/../../x", REG, "", 1)], "not a path inside"),
        ([("a//b", REG, "", 1)], "not a path inside"),
        ([("./a", REG, "", 1)], "not a path inside"),
        ([("a", HARD, "/etc/passwd", 0)], "neither a file"),
        ([("a", tarfile.FIFOTYPE, "", 0)], "neither a file"),
        ([("a", tarfile.BLKTYPE, "", 0)], "neither a file"),
        ([("a", LINK, "/etc/passwd", 0)], "points out"),
        ([("a", LINK, "../x", 0)], "points out"),
        ([("d/a", LINK, "../../x", 0)], "points out"),
        ([("a", LINK, ".", 0), ("b", LINK, "a/../..", 0)], "points out"),
        ([("a", LINK, "b", 0), ("a/x", REG, "", 1)], "below a link"),
        ([("a", LINK, "b", 0), ("a", DIR, "", 0)], "occurs twice"),
        ([("a", REG, "", 1), ("a", REG, "", 1)], "occurs twice"),
        ([("a", REG, "", 1), ("a/b", REG, "", 1)], "below a file"),
        ([("a/b", REG, "", 1), ("a", LINK, "c", 0)], "occurs twice"),
        ([("n" * 256, REG, "", 1)], "more than 255 bytes"),
        ([("a", LINK, "c\0d" + "e" * 100, 0)], "not a path inside"),
        ([("n" * (2 << 20), REG, "", 1)], "a header of the tar file"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_could_leave_the_folder_is_refused(
    members: list[tuple[str, bytes, str, int]], why: str, tmp_path: Path
) -> None:
    manifest, read = tar_of(*members)
    with pytest.raises(InvalidArchive, match=why):
        check_members(manifest, read)
    with pytest.raises(InvalidArchive, match=why):
        unpack(manifest, read, tmp_path / "copy")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
@pytest.mark.parametrize(
    ("name", "kind", "target", "why"),
    [
        ("a/" * 9000 + "f", REG, "", "more than 4,096 bytes"),
        ("l", LINK, "a/" * 9000, "more than 4,096 bytes"),
        ("a/" * 128 + "f", REG, "", "below more than 127 folders"),
        ("a/" * 500_000 + "f", REG, "", "a header of the tar file"),
    ],
    ids=["name", "target", "depth", "header"],
)
def test_a_path_has_a_length_and_a_depth(form: int, name: str, kind: bytes, target: str, why: str) -> None:
    """All folders above a name would be remembered."""
    with pytest.raises(InvalidArchive, match=why):
        check_members(*tar_of((name, kind, target, 0), form=form))
    check_members(*tar_of(("a/" * 127 + "f" * 255, REG, "", 0), ("l", LINK, "a/" * 2047, 0), form=form))


def test_a_size_below_zero_is_refused() -> None:
    member = tarfile.TarInfo("a")
    member.size = -5000
    file = io.BytesIO(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(InvalidArchive, match="negative size"):
        check_members(*parts_of(file))


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardyard.workers.code_archive.MOST_FILES", 3)
    check_members(*tar_of(*((str(number), REG, "", 0) for number in range(3))))
    with pytest.raises(InvalidArchive, match="more than 3 files"):
        check_members(*tar_of(*((str(number), REG, "", 0) for number in range(4))))


def test_too_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of 4,096 bytes may name 127 of them."""
    monkeypatch.setattr("shardyard.workers.code_archive.MOST_FILES", 3)
    check_members(*tar_of(("a/b/c/x", REG, "", 0), ("a/b/y", REG, "", 0)))
    folders = [("a/b/x", REG, "", 0), ("c/d/y", REG, "", 0)]
    with pytest.raises(InvalidArchive, match="more than 3 folders"):
        check_members(*tar_of(*folders))
    for name, *_ in folders:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    with pytest.raises(InvalidArchive, match="more than 3 folders"):
        packed(tmp_path, [name for name, *_ in folders])


def test_what_is_read_is_what_tarfile_reads(tmp_path: Path) -> None:
    """In every format, also with what other programs write: folders, long links, headers of all members."""
    deep = "/".join(["ä" * 100] * 12)  # 2,411 bytes
    members = [
        *[("d", DIR, "", 0), ("d/" + "f" * 98, REG, "", 700), ("d/link", LINK, "e/" * 60 + "x", 0)],
        *[(deep + "/x", REG, "", 3), (deep + "/bytes-\udcff", REG, "", 512), (deep + "/g", DIR, "", 0)],
    ]
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form, pax_headers={"comment": "a commit"}) as tar:
            for name, kind, target, size in members:
                member = tarfile.TarInfo(name)
                member.type, member.linkname, member.size = kind, target, size
                tar.addfile(member, io.BytesIO(os.urandom(size)))
        copy = tmp_path / str(form)
        unpack(*parts_of(file), copy)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            found = tar.getmembers()
            assert [one.name for one in found] == [name for name, *_ in members]
            for one in found:
                path = copy / one.name
                if one.isreg():
                    content = tar.extractfile(one)
                    assert content is not None and path.read_bytes() == content.read()
                else:
                    assert path.is_dir() if one.isdir() else str(path.readlink()) == one.linkname


def header(kind: bytes, content: bytes) -> bytes:
    """An extended header of any content."""
    member = tarfile.TarInfo("header")
    member.type, member.size = kind, len(content)
    return member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


EMPTY_FILE = tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT) + bytes(1024)
LONG, PAX, GLOBAL = tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE


def test_headers_of_a_member_may_be_many() -> None:
    """Each is read in its turn, without a call within a call, and nothing but the newest is kept."""
    check_members(*parts_of(io.BytesIO(header(LONG, b"name\0") * 2000 + EMPTY_FILE)))
    unknown = b"".join(b"%d key-%05d=%s\n" % (1013, number, b"x" * 997) for number in range(20))
    check_members(*parts_of(io.BytesIO((header(PAX, unknown) + header(GLOBAL, unknown)) * 50 + EMPTY_FILE)))


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        (PAX, b"2 " * 8000 + b"=", "no records"),  # tarfile had a key of each, of all that follows
        (PAX, b"0 a=b\n", "no records"),
        (PAX, b"99999999 a=b\n", "no records"),
        (PAX, b"8 a=bcd", "no records"),
        (PAX, b"7 abcd\n", "no records"),
        (PAX, b"-5 a=b\n", "no records"),
        (PAX, b"9 size=x\n", "not a tar file"),
        (PAX, b"11 size=-5\n", "negative size"),
        (PAX, b"14 size=99999\n", "ends within a file"),
        (PAX, b"22 GNU.sparse.major=1\n", "a sparse file"),
        (PAX, b"1" * (33 << 10), "a header of the tar file"),
        (GLOBAL, b"1" * (33 << 10), "a header of the tar file"),
        (tarfile.GNUTYPE_SPARSE, b"", "neither a file"),
    ],
)
def test_a_header_that_says_what_it_should_not_is_refused(kind: bytes, content: bytes, why: str) -> None:
    with pytest.raises(InvalidArchive, match=why):
        check_members(*parts_of(io.BytesIO(header(kind, content) + EMPTY_FILE)))


def test_a_header_of_digits_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """tarfile looked for a charset in it, from each digit to the last one."""
    monkeypatch.setattr(tarfile.TarFile, "next", None)
    record = b"20011 key=" + b"1" * 20000 + b"\n"
    check_members(*parts_of(io.BytesIO(header(PAX, record) + EMPTY_FILE)))


def test_a_file_that_is_cut_off_is_refused() -> None:
    _, read = tar_of(("a", REG, "", 700))
    whole = zlib.decompress(read(0))
    for size, why in ((512 + 700, "ends within a file"), (300, "ends within a block")):
        with pytest.raises(InvalidArchive, match=why):
            check_members(*parts_of(io.BytesIO(whole[:size])))
    check_members(*parts_of(io.BytesIO(whole[: 512 + 1024])))  # without the blocks of zeros


def test_what_is_no_tar_file_is_refused() -> None:
    with pytest.raises(InvalidArchive, match="not a tar file"):
        check_members(*parts_of(io.BytesIO(os.urandom(4096))))


def test_a_part_is_inflated_only_to_its_size() -> None:
    """A deflated terabyte is refused after one byte too many."""
    bomb = zlib.compress(bytes(64 << 20), 9)
    manifest = Manifest(100, 1, (hashlib.sha256(bytes(100)).hexdigest(),))
    assert inflated(manifest, 0, deflated(bytes(100))) == bytes(100)
    for stored in (bomb, deflated(bytes(99)), deflated(bytes(101)), b"no", deflated(bytes(100)) + b"more"):
        with pytest.raises(InvalidArchive):
            inflated(manifest, 0, stored)
    with pytest.raises(InvalidArchive, match="another SHA-256"):
        inflated(manifest, 0, deflated(b"x" * 100))


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest((2 << 30) + 1, 1, ("0" * 64,) * 513),
        Manifest(1, 100_001, ("0" * 64,)),
        Manifest(1, 1, ()),
        Manifest(PART_BYTES, 1, ("0" * 64,) * 2),
        Manifest(1, 1, ("g" * 64,)),
    ],
)
def test_a_manifest_within_limits_agrees_with_itself(manifest: Manifest) -> None:
    with pytest.raises(InvalidArchive):
        manifest.check()
