"""A folder of code as an archive: a tar file in parts, which is named by its content.

The manifest has the SHA-256 of each part; the archive's name is the SHA-256 of the manifest. Parts are stored deflated. What is read is
bounded by the manifest, so that no archive grows beyond what it says. Reading takes memory for the names alone, which are bounded, and
time that is linear in the archive's size. Imports no torch.
"""

import errno
import hashlib
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from .messages import json_codec
from .storage.folder import Folder

#: Bytes of each part but the last.
PART_BYTES: Final = 4 << 20
#: Maximum bytes of a part as it is stored: deflated data may be slightly larger than what it is made of.
MOST_STORED: Final = PART_BYTES + (PART_BYTES >> 8)
#: Maximum bytes of an archive.
MOST_BYTES: Final = 2 << 30
#: Maximum number of members of an archive, and of the folders that they are in.
MOST_FILES: Final = 100_000
#: Maximum characters of a manifest's diff.
MOST_DIFF: Final = 256 << 10
#: File in an archive's folder that has its manifest. The parts are `part_name(0)` and so on.
MANIFEST: Final = "manifest.json"
#: Maximum bytes of an extended header in the tar file, such as a long name. Ours have a name and a link's target.
_MOST_HEADER: Final = 32 << 10
#: Maximum bytes of a path, and of a link's target.
_MOST_NAME: Final = 4096
#: Bytes of one part of a path, by the file systems of Linux.
_MOST_PART: Final = 255
#: Maximum number of parts of a path. Python's removal of folders, among others, recurses once per part.
_MOST_DEPTH: Final = 128
#: The length of a record in a pax header.
_LENGTH: Final = re.compile(rb"([0-9]{1,5}) ")
#: Time of all files, so that the same files are the same archive: 2000-01-01. (Zip files hold no time before 1980.)
_MTIME: Final = 946_684_800


class InvalidArchive(Exception):
    """The archive, or something in it, is not accepted."""


@dataclass(frozen=True)
class Manifest:
    """What an archive consists of, and which commit it is of."""

    bytes: int
    files: int
    parts: tuple[str, ...] = field(default_factory=tuple)  # SHA-256 of each part's bytes, in hexadecimal digits
    commit: str | None = None  # of git, if the folder is part of a repository
    diff: str | None = None  # against that commit, perhaps cut

    @property
    def digest(self) -> str:
        """The archive's name: 64 hexadecimal digits."""
        return hashlib.sha256(json_codec.dumps(self)).hexdigest()

    def size_of(self, number: int) -> int:
        """Bytes of a part."""
        return min(PART_BYTES, self.bytes - number * PART_BYTES)

    def check(self) -> None:
        """Raise InvalidArchive if the manifest contradicts itself or exceeds the limits."""
        if self.bytes > MOST_BYTES:
            raise InvalidArchive(f"the archive has {self.bytes:,} bytes, more than {MOST_BYTES:,}")
        if self.files > MOST_FILES:
            raise InvalidArchive(f"the archive has {self.files:,} files, more than {MOST_FILES:,}")
        if len(self.parts) != -(-self.bytes // PART_BYTES):
            raise InvalidArchive(f"{self.bytes:,} bytes are not {len(self.parts)} parts of {PART_BYTES:,} bytes")
        if any(len(part) != 64 or not set(part) <= set("0123456789abcdef") for part in self.parts):
            raise InvalidArchive("a part's SHA-256 is not 64 hexadecimal digits")


def part_name(number: int) -> str:
    return f"part-{number:04d}"


def pack(folder: Path, names: list[str], file: BinaryIO) -> None:
    """Write these files of the folder, relative paths, as a tar file. Equal files make an equal one. Raises InvalidArchive, OSError."""
    tree = _Tree()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            path = folder / name
            member = tar.gettarinfo(path, arcname=name)
            if member is None or not (member.isreg() or member.issym() or member.islnk()):
                raise InvalidArchive(f"{name} is neither a file nor a link")
            if member.islnk():  # two names of one file: both are stored
                member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            member.mtime, member.uid, member.gid, member.uname, member.gname = _MTIME, 0, 0, "", ""
            tree.add(member)
            if member.isreg():
                with path.open("rb") as content:
                    _add(tar, member, content)
            else:
                tar.addfile(member)


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, content: BinaryIO) -> None:
    try:
        tar.addfile(member, content)
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidArchive(f"{member.name} became shorter while it was read") from error


def manifest_of(file: BinaryIO, files: int, commit: str | None = None, diff: str | None = None) -> Manifest:
    """The manifest of a tar file, which is read from its beginning."""
    file.seek(0)
    parts, size = [], 0
    while part := file.read(PART_BYTES):
        parts.append(hashlib.sha256(part).hexdigest())
        size += len(part)
    return Manifest(size, files, tuple(parts), commit, diff)


def deflated(part: bytes) -> bytes:
    return zlib.compress(part, 6)


def inflated(manifest: Manifest, number: int, stored: bytes) -> bytes:
    """A part's bytes. Raises InvalidArchive if they are not those of the manifest; no more of them are ever made."""
    size = manifest.size_of(number)
    stream = zlib.decompressobj()
    try:
        part = stream.decompress(stored, size + 1)
    except zlib.error:
        raise InvalidArchive(f"part {number} is not deflated data") from None
    if len(part) != size or not stream.eof or stream.unused_data:
        raise InvalidArchive(f"part {number} does not have {size:,} bytes")
    if hashlib.sha256(part).hexdigest() != manifest.parts[number]:
        raise InvalidArchive(f"part {number} has another SHA-256 than its manifest says")
    return part


def stored_parts(folder: Folder) -> Callable[[int], bytes]:
    """Reads a part as it is stored. What jobs may have put in its place takes no more memory than a part: then it raises InvalidArchive.

    Raises OSError, now and for each part.
    """
    sizes = folder.files()

    def read(number: int) -> bytes:
        name = part_name(number)
        size = sizes.get(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if size > MOST_STORED:
            raise InvalidArchive(f"part {number} in storage has {size:,} bytes, more than a part may have")
        content = bytearray(size)
        folder.read_into(name, 0, memoryview(content))
        return bytes(content)

    return read


def check_members(manifest: Manifest, read: Callable[[int], bytes]) -> None:
    """Read the whole archive. `read`: a part as it is stored. Raises InvalidArchive for what `unpack` would refuse."""
    for _ in _members(manifest, read):
        pass


def unpack(manifest: Manifest, read: Callable[[int], bytes], folder: Path) -> None:
    """Write the archive's files into a new folder. Raises InvalidArchive, OSError; then the folder is incomplete."""
    folder.mkdir()
    for stream, member in _members(manifest, read):
        path = folder / member.name
        (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
        if member.issym():
            path.symlink_to(member.linkname)
        elif member.isreg():
            with path.open("xb") as file:
                file.writelines(stream.pieces(member.size))
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
            os.utime(path, (member.mtime, member.mtime))


def _members(manifest: Manifest, read: Callable[[int], bytes]) -> Iterator[tuple["_Stream", tarfile.TarInfo]]:
    """Each file, link and folder, once it is known to be harmless. The stream is at the first byte of its content."""
    stream, tree = _Stream(manifest, read), _Tree()
    while (member := _next_member(stream)) is not None:
        tree.add(member)
        after = stream.place + (_blocks(member.size) if member.isreg() else 0)
        if after > manifest.bytes:
            raise InvalidArchive("it is not a tar file: it ends within a file")
        yield stream, member
        stream.place = after


def _next_member(stream: "_Stream") -> tarfile.TarInfo | None:
    """The next file, link, folder or other member; None at the archive's end.

    `tarfile` decodes single blocks only. Its reader of archives keeps all headers of a member, calls itself for each of them, and
    searches one in quadratic time before Python 3.11.10 (CVE-2024-6232).
    """
    extended: dict[str, str] = {}
    while not stream.is_at_end() and (block := stream.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            if member.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                extended |= _extended(member.type, _header(stream, member.size))
            elif member.type == tarfile.XGLTYPE:  # of all members, such as the commit of `git archive`
                _header(stream, member.size)
            else:
                member.name = extended.get("path", member.name)
                member.linkname = extended.get("linkpath", member.linkname)
                member.size = _checked_size(int(extended.get("size", member.size)))
                return member
        except (tarfile.HeaderError, ValueError) as error:
            raise InvalidArchive(f"it is not a tar file: {error}") from None
    return None


def _checked_size(size: int) -> int:
    if size < 0:
        raise InvalidArchive("a member of the tar file has a negative size")
    return size


def _header(stream: "_Stream", size: int) -> bytes:
    if _checked_size(size) > _MOST_HEADER:
        raise InvalidArchive(f"a header of the tar file has more than {_MOST_HEADER:,} bytes")
    return stream.read(_blocks(size))[:size]


def _extended(kind: bytes, header: bytes) -> dict[str, str]:
    """What an extended header says of the next member's path, target (`linkpath`) and size. Raises InvalidArchive, ValueError."""
    if kind != tarfile.XHDTYPE:
        key = "path" if kind == tarfile.GNUTYPE_LONGNAME else "linkpath"
        found = {key: header.split(b"\0", 1)[0].decode(errors="surrogateescape")}
    else:
        found = dict(_records(header))
    if "path" in found:
        found["path"] = found["path"].rstrip("/")  # of a folder
    return found


def _records(header: bytes) -> Iterator[tuple[str, str]]:
    """The records that count of a pax header. Each is `LENGTH KEY=VALUE` and a newline; the length is that of the whole record."""
    at = 0
    while at < len(header):
        length = _LENGTH.match(header, at)
        end = at + int(length[1]) if length else 0
        key, equals, value = header[length.end() if length else 0 : end].partition(b"=")
        if end <= at or not equals or not value.endswith(b"\n"):
            raise InvalidArchive("it is not a tar file: a pax header has no records")
        if key.startswith(b"GNU.sparse."):
            raise InvalidArchive("it has a sparse file")
        if key in (b"path", b"linkpath", b"size"):
            yield key.decode(), value[:-1].decode(errors="surrogateescape")
        at = end


def _blocks(size: int) -> int:
    """Bytes of the blocks that `size` bytes take."""
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


_Folder = dict[bytes, "_Folder | str"]


class _Tree:
    """The members of an archive by now: each folder by the names in it, which are of folders, or "file" or "link"."""

    def __init__(self) -> None:
        self._top: _Folder = {}
        self._members = self._folders = 0

    def add(self, member: tarfile.TarInfo) -> None:
        """Raises InvalidArchive for a member that could be written outside the folder, or not at all, and for one too many."""
        _check(member)
        self._members += 1
        if self._members > MOST_FILES:
            raise InvalidArchive(f"the archive has more than {MOST_FILES:,} files")
        *above, last = _bytes(member.name).split(b"/")
        folder, shown = self._top, ascii(member.name[:200])
        for part in above:
            inner = self._folder(folder, part)
            if isinstance(inner, str):
                raise InvalidArchive(f"{shown} is below a {inner}")
            folder = inner
        if member.isdir() and not isinstance(self._folder(folder, last), str):
            return
        if last in folder:
            raise InvalidArchive(f"{shown} occurs twice")
        folder[last] = "link" if member.issym() else "file"

    def _folder(self, above: _Folder, part: bytes) -> "_Folder | str":
        if part not in above:
            self._folders += 1
            if self._folders > MOST_FILES:
                raise InvalidArchive(f"the archive has more than {MOST_FILES:,} folders")
            above[part] = {}
        return above[part]


def _check(member: tarfile.TarInfo) -> None:
    """Raise InvalidArchive for a member that could be written outside the folder, or not at all, whatever the others are."""
    name, target, shown = member.name, member.linkname, ascii(member.name[:200])
    if max(len(_bytes(name)), len(_bytes(target))) > _MOST_NAME:
        raise InvalidArchive(f"{shown} or its target has more than {_MOST_NAME:,} bytes")
    parts = name.split("/")
    if not name or {"", ".", ".."} & {*parts} or "\0" in name + target:
        raise InvalidArchive(f"{shown} is not a path inside the folder")
    if len(parts) > _MOST_DEPTH:
        raise InvalidArchive(f"{shown} is below more than {_MOST_DEPTH - 1} folders")
    if any(len(_bytes(part)) > _MOST_PART for part in parts):
        raise InvalidArchive(f"{shown} has a part of more than {_MOST_PART} bytes")
    if member.type == tarfile.GNUTYPE_SPARSE or not (member.isreg() or member.isdir() or member.issym()):
        raise InvalidArchive(f"{shown} is neither a file nor a link nor a folder")
    if member.issym() and not _stays_inside(target, len(parts) - 1):
        raise InvalidArchive(f"the link {shown} points out of the folder, to {target[:200]!a}")


def _bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a link's target is inside, whatever the links are that it passes: steps up come first, and no more than there are."""
    steps = target.split("/")
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    return not posixpath.isabs(target) and bool(target) and ups <= depth and ".." not in steps[ups:]


class _Stream:
    """The tar file, read forwards from its parts, one of which is in memory."""

    def __init__(self, manifest: Manifest, read: Callable[[int], bytes]) -> None:
        self._manifest, self._read_part = manifest, read
        self._number, self._part = -1, b""
        self.place = 0

    def is_at_end(self) -> bool:
        return self.place >= self._manifest.bytes

    def read(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next bytes, by part. Raises InvalidArchive if there are fewer."""
        while size:
            if self.is_at_end():
                raise InvalidArchive("it is not a tar file: it ends within a block")
            number, at = divmod(self.place, PART_BYTES)
            if number != self._number:
                self._number, self._part = number, inflated(self._manifest, number, self._read_part(number))
            piece = self._part[at : at + size]
            self.place += len(piece)
            size -= len(piece)
            yield piece
