"""A folder of code as an archive: a tar file in parts, which is named by its content.

The manifest has the SHA-256 of each part; the archive's name is the SHA-256 of the manifest. Parts are stored deflated. What is read is
bounded by the manifest, so that no archive grows beyond what it says. Imports no torch.
"""

import hashlib
import io
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from .messages import json_codec

#: Bytes of each part but the last.
PART_BYTES: Final = 4 << 20
#: Maximum bytes of an archive.
MOST_BYTES: Final = 2 << 30
#: Maximum number of files and folders in an archive.
MOST_FILES: Final = 100_000
#: Maximum characters of a manifest's diff.
MOST_DIFF: Final = 256 << 10
#: File in an archive's folder that has its manifest. The parts are `part_name(0)` and so on.
MANIFEST: Final = "manifest.json"
#: Maximum bytes of a header in the tar file, such as a long name.
_MOST_HEADER: Final = 1 << 20
_MOST_NAME: Final = 4096
#: Bytes of one part of a path, by the file systems of Linux.
_MOST_PART: Final = 255
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
            _check(member, _Seen(set(), set(), set()))
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


def check_members(manifest: Manifest, read: Callable[[int], bytes]) -> None:
    """Read the whole archive. `read`: a part as it is stored. Raises InvalidArchive for what `unpack` would refuse."""
    for _ in _members(manifest, read):
        pass


def unpack(manifest: Manifest, read: Callable[[int], bytes], folder: Path) -> None:
    """Write the archive's files into a new folder. Raises InvalidArchive, OSError; then the folder is incomplete."""
    folder.mkdir()
    for tar, member in _members(manifest, read):
        path = folder / member.name
        (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
        if member.issym():
            path.symlink_to(member.linkname)
        elif member.isreg():
            content = tar.extractfile(member)
            assert content is not None
            with path.open("xb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
            os.utime(path, (member.mtime, member.mtime))


def _members(manifest: Manifest, read: Callable[[int], bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each file, link and folder, once it is known to be harmless, while the archive is read up to it."""
    seen = _Seen(set(), set(), set())
    try:
        with tarfile.open(fileobj=_Stream(manifest, read), mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                _check(member, seen)
                if len(seen.names) > MOST_FILES:
                    raise InvalidArchive(f"the archive has more than {MOST_FILES:,} files")
                yield tar, member
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InvalidArchive(f"it is not a tar file: {error}") from None


class _Seen(NamedTuple):
    """The members of an archive by now: all names, those of links, and the folders that members are in or are."""

    names: set[str]
    links: set[str]
    folders: set[str]


def _check(member: tarfile.TarInfo, seen: _Seen) -> None:
    """Raise InvalidArchive for a member that could be written outside the folder, or not at all; else remember it."""
    name, shown = member.name, ascii(member.name[:200])
    parts = name.split("/")
    above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
    if not name or len(_bytes(name)) > _MOST_NAME or {"", ".", ".."} & {*parts} or "\0" in name + member.linkname:
        raise InvalidArchive(f"{shown} is not a path inside the folder")
    if any(len(_bytes(part)) > _MOST_PART for part in parts):
        raise InvalidArchive(f"{shown} has a part of more than {_MOST_PART} bytes")
    if member.issparse() or not (member.isreg() or member.isdir() or member.issym()):
        raise InvalidArchive(f"{shown} is neither a file nor a link nor a folder")
    if name in seen.names or (name in seen.folders and not member.isdir()):
        raise InvalidArchive(f"{shown} occurs twice")
    if above & seen.links:
        raise InvalidArchive(f"{shown} is below a link")
    if any(one in seen.names and one not in seen.folders for one in above):
        raise InvalidArchive(f"{shown} is below a file")
    if member.issym():
        if not _stays_inside(member.linkname, len(parts) - 1):
            raise InvalidArchive(f"the link {shown} points out of the folder, to {member.linkname[:200]!a}")
        seen.links.add(name)
    seen.names.add(name)
    seen.folders.update(above | {name} if member.isdir() else above)


def _bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a link's target is inside, whatever the links are that it passes: steps up come first, and no more than there are."""
    steps = target.split("/")
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    return not posixpath.isabs(target) and bool(target) and ups <= depth and ".." not in steps[ups:]


class _Stream(io.RawIOBase):
    """The tar file, read forwards from its parts."""

    def __init__(self, manifest: Manifest, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._manifest, self._read_part = manifest, read
        self._place, self._number, self._part = 0, -1, b""

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Only forwards, or nowhere from here; tarfile never goes back where there are no hard links."""
        if not ((whence == io.SEEK_CUR and place == 0) or (whence == io.SEEK_SET and place >= self._place)):
            raise InvalidArchive("a member of the tar file has a negative size")
        self._place = self._place if whence == io.SEEK_CUR else place
        return self._place

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise InvalidArchive(f"a header of the tar file has more than {_MOST_HEADER:,} bytes")
        found = bytearray()
        while len(found) < size and self._place < self._manifest.bytes:
            number, at = divmod(self._place, PART_BYTES)
            if number != self._number:
                self._number, self._part = number, inflated(self._manifest, number, self._read_part(number))
            piece = self._part[at : at + size - len(found)]
            found += piece
            self._place += len(piece)
        return bytes(found)
