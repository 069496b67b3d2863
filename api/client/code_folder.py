"""The folder that a spec's `code` names, or a clone: which of its files are uploaded, and the archive that is made of them.

In a git repository these are the files that git knows, and new ones that it does not ignore; elsewhere all files but those that
`.gitignore` files exclude, and virtual environments and caches. `code.ignore` excludes more. The archive is named in the spec, which is
then complete.
"""

import json
import os
import posixpath
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from pathspec import GitIgnoreSpec
from pydantic import ValidationError

from ...service.program_spec import Code
from ...workers import code_archive
from ...workers.code_archive import InvalidArchive, Manifest
from ..errors import CodeFolderUnusable
from .git_clone import ELSEWHERE, clone

#: Never uploaded, and outside git repositories not either.
_NEVER: Final = (".git",)
_USUALLY_IGNORED: Final = ("__pycache__/", "*.pyc", ".venv/", "venv/", "node_modules/", ".ipynb_checkpoints/")
_NOTHING: Final = GitIgnoreSpec.from_lines([])
#: Seconds that one call of git may take.
_GIT_S: Final = 60.0
#: Characters of a diff as JSON, in which most letters take six: beside the digests of all parts it fits into one request.
_MOST_SENT: Final = 640 << 10
#: Characters of names on a command line.
_MOST_ARGUMENTS: Final = 64 << 10


@dataclass(frozen=True)
class PackedCode:
    """The archive of a spec's folder, in a temporary file."""

    manifest: Manifest
    file: BinaryIO

    def part(self, number: int) -> bytes:
        """A part as it is sent."""
        self.file.seek(number * code_archive.PART_BYTES)
        return code_archive.deflated(self.file.read(self.manifest.size_of(number)))

    def named_in(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The spec, which names the archive."""
        return {**document, "code": {**document["code"], "archive": self.manifest.digest}}


@contextmanager
def packed(document: Any) -> Iterator[PackedCode | None]:
    """The archive of the folder or repository that a loaded spec names; None if it names none, or an archive already.

    Raises CodeFolderUnusable.
    """
    code = to_upload(document)
    if code is None:
        yield None
        return
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(prefix="shardyard-code-"))
        if code.dir is not None:
            folder = Path(code.dir)
        else:
            assert code.git is not None
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardyard-clone-")))
            clone(code.git, code.ref, folder)
        yield _packed(folder, code, file, document)


def to_upload(document: Any) -> Code | None:
    """The folder or repository that a loaded spec names; None if it names none, or an archive already."""
    try:
        code = Code.model_validate(document["code"])
    except (KeyError, TypeError, ValidationError):  # the server says what is wrong with it
        return None
    return code if code.archive is None else None


def _packed(folder: Path, code: Code, file: BinaryIO, document: Mapping[str, Any]) -> PackedCode:
    if not folder.is_dir():
        raise CodeFolderUnusable(f"{folder} is not a folder.", field="code.dir", remedy="Name the folder of your code.")
    try:
        found = files(folder, code.ignore)
        _check_named(document, found)
        _check_size(folder, found)
        code_archive.pack(folder, found, file)
        file.flush()
        commit, diff = _commit(folder, GitIgnoreSpec.from_lines(code.ignore))
        manifest = code_archive.manifest_of(file, len(found), commit, diff)
        manifest.check()
    except InvalidArchive as error:
        remedy = "Leave it out with code.ignore, such as [data/, '*.ckpt'], or move it out of the folder."
        field = "code.git" if code.dir is None else "code.dir"
        raise CodeFolderUnusable(f"{code.source} cannot be uploaded: {error}.", field=field, remedy=remedy) from None
    except OSError as error:
        name = error.filename or folder
        remedy = "Make it readable, or leave it out with code.ignore."
        raise CodeFolderUnusable(f"{name}: {error.strerror}.", field="code.dir", remedy=remedy) from None
    return PackedCode(manifest, file)


def files(folder: Path, patterns: list[str]) -> list[str]:
    """Paths of the files to upload, relative to the folder. Raises CodeFolderUnusable if there is none."""
    try:
        ignored = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        remedy = "Write patterns as in a .gitignore file, such as data/ or '*.ckpt'."
        raise CodeFolderUnusable(f"code.ignore: {error}.", field="code.ignore", remedy=remedy) from None
    found = sorted(islice(_kept(folder, ignored), code_archive.MOST_FILES + 1))
    if not found:
        remedy = "Name a folder with files that git does not ignore."
        raise CodeFolderUnusable(f"{folder} has no file to upload.", field="code.dir", remedy=remedy)
    return found


def _kept(folder: Path, ignored: GitIgnoreSpec) -> Iterator[str]:
    return (name for name in _listed(folder, ignored) if not _is_left_out(folder, name, ignored))


def _is_left_out(folder: Path, name: str, ignored: GitIgnoreSpec) -> bool:
    """Whether `code.ignore` leaves a file out, or a link: also by a pattern of folders, which git matches with no link."""
    return _matches(ignored, name) or (_matches(ignored, f"{name}/") and (folder / name).is_symlink())


def _check_named(document: Mapping[str, Any], found: list[str]) -> None:
    """Refuse a spec that names a file or folder of its code that is not uploaded. Else a node would find that out, once the job runs."""
    env, mounts = ({**one} if isinstance(one := document.get(key), Mapping) else {} for key in ("env", "files"))
    folders = {str(folder) for name in found for folder in PurePosixPath(name).parents}
    targets = {posixpath.normpath(str(target)) for target in mounts}
    folders |= {str(folder) for target in targets for folder in PurePosixPath(target).parents}  # which the mount makes
    ends = {*found, *targets}  # below a link or a mount anything may be
    for field, given in (
        ("env.python", env.get("python")),
        ("env.conda", env.get("conda")),
        ("cwd", document.get("cwd")),
    ):
        name = posixpath.normpath(given) if isinstance(given, str) else "."
        outside = name.startswith(("/", ".."))  # as the nodes see it; or the service refuses it
        if not outside and name not in folders | ends and ends.isdisjoint(map(str, PurePosixPath(name).parents)):
            raise CodeFolderUnusable(
                f"{name[:200]!r} is not in the uploaded code.",
                field=field,
                remedy="Correct the name, which is relative to the code's folder; or git or code.ignore leaves it out.",
            )


def _check_size(folder: Path, names: list[str]) -> None:
    """Refuse a folder that is too large before it is read, and name its largest file."""
    if len(names) > code_archive.MOST_FILES:
        raise InvalidArchive(f"it has more than {code_archive.MOST_FILES:,} files")
    sizes = {name: (folder / name).lstat().st_size for name in names}
    if sum(sizes.values()) > code_archive.MOST_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise InvalidArchive(
            f"it has {sum(sizes.values()):,} bytes, more than {code_archive.MOST_BYTES:,}; the largest file is {largest}"
        )


def _listed(folder: Path, ignored: GitIgnoreSpec) -> Iterator[str]:
    """All files that git or the `.gitignore` files do not exclude. Folders that are `ignored` may be left out."""
    known = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if known is None:
        yield from _walked(folder, ignored)
        return
    for name in dict.fromkeys(os.fsdecode(known).split("\0")):
        path = folder / name
        if not name or not os.path.lexists(path):  # deleted, and not yet committed
            continue
        if path.is_symlink() or not path.is_dir():
            yield name
        elif (path / ".git").exists():  # a submodule, or another repository; without it one that was not checked out
            yield from (str(PurePosixPath(name) / below) for below in _listed(path, _NOTHING))


def _walked(folder: Path, ignored: GitIgnoreSpec) -> Iterator[str]:
    """Every file that no `.gitignore` excludes. A pattern of an inner folder wins over those of outer ones."""
    specs: dict[str, GitIgnoreSpec] = {}
    for root, folders, names in os.walk(folder):
        here = Path(root).relative_to(folder).as_posix()
        lines = [] if here != "." else [*_USUALLY_IGNORED]
        if ".gitignore" in names:
            lines += (Path(root) / ".gitignore").read_text(errors="replace").splitlines()
        if lines:
            specs[here] = _as_git_reads(lines)
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if name not in (*_NEVER, *links)
            and not _is_ignored(path := f"{_joined(here, name)}/", specs)
            and not _matches(ignored, path)
        ]
        yield from (path for name in (*names, *links) if not _is_ignored(path := _joined(here, name), specs))


def _as_git_reads(lines: list[str]) -> GitIgnoreSpec:
    """The patterns of a `.gitignore` file. git disregards a line that is none, such as `!` alone."""
    patterns: list[Any] = []
    for line in lines:
        with suppress(ValueError):
            patterns += GitIgnoreSpec.from_lines([line]).patterns
    return GitIgnoreSpec(patterns)


def _is_ignored(path: str, specs: Mapping[str, GitIgnoreSpec]) -> bool:
    ignored = False
    for above in (".", *(str(parent) for parent in reversed(PurePosixPath(path).parents) if str(parent) != ".")):
        if above in specs:
            found = specs[above].check_file(_printable(path if above == "." else path.removeprefix(f"{above}/")))
            ignored = ignored if found.include is None else found.include
    return ignored


def _matches(patterns: GitIgnoreSpec, path: str) -> bool:
    return bool(patterns.match_file(_printable(path)))


def _printable(path: str) -> str:
    """The path with U+FFFD for each byte that is not UTF-8, for patterns. They take no surrogates."""
    return os.fsencode(path).decode(errors="replace")


def _joined(here: str, name: str) -> str:
    return name if here == "." else f"{here}/{name}"


def _commit(folder: Path, ignored: GitIgnoreSpec) -> tuple[str | None, str | None]:
    """The commit that the folder is at, and the changes since then, but for `ignored` files; None where there are none."""
    head = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if head is None:
        return None, None
    diff = ("-c", "color.ui=false", "diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative", "HEAD")
    names = (_git(folder, *diff, "--name-only", "-z") or b"").split(b"\0")
    left = [name for one in names if _is_left_out(folder, name := os.fsdecode(one), ignored)]
    if sum(map(len, left)) > _MOST_ARGUMENTS:
        return head.decode().strip(), None
    changed = _git(folder, *diff, "--", ".", *(f":(exclude,literal){name}" for name in left))
    text = (changed or b"").decode(errors="replace").replace("\0", "")
    text = text[: code_archive.MOST_DIFF]
    while len(json.dumps(text)) > _MOST_SENT:
        text = text[: len(text) // 2]
    return head.decode().strip(), text or None


def _git(folder: Path, *words: str) -> bytes | None:
    """What git prints; None without git, outside a repository, and where git refuses."""
    if shutil.which("git") is None:
        return None
    command = ["git", "-C", str(folder), *words]
    try:
        known = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        done = subprocess.run(
            command, env=known, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
