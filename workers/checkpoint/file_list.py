"""Lists the files of a checkpoint, in a process of its own whose memory is bounded. Imports no torch.

A parsed manifest takes some eleven times its size, and one that a program forged takes thirty times. So a server does not parse it: it
starts `python -m shardyard.workers.checkpoint.file_list FOLDER MEMORY`, and gives it the manifest on stdin. FOLDER is for messages. What
it prints is a JSON object with `digest` and `files`, or with `corrupt` or `unusable`, a message. Memory that does not suffice ends it.

A manifest is written where a job's program may write too, so its names are checked: a stored file lies in the checkpoint's folder itself,
and a program's path stays below the folder into which it is downloaded.
"""

import contextlib
import hashlib
import json
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from .errors import CheckpointCorrupt, CheckpointError
from .manifest import MANIFEST, checked

#: Stored name, size in bytes, SHA-256.
Stored = tuple[str, int, str]

#: A longer answer would fill the process that reads it. 50,000 files, the most that a program saves, take 10 MB.
MOST_BYTES: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def main(where: str, memory: str) -> None:
    """Print the list of the manifest on stdin. `memory`: bytes that this process may have."""
    with contextlib.suppress(OSError, ValueError):  # the system has no such limit, or a lower one
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    sys.stdout.buffer.write(answer(sys.stdin.buffer.read(), where))


def answer(content: bytes, where: str) -> bytes:
    """What is printed for a manifest of this content in the folder `where`."""
    try:
        found = json.dumps(listed(content, where)).encode()
        if len(found) > MOST_BYTES:
            raise CheckpointError(f"its list of files has {len(found):,} bytes, of at most {MOST_BYTES:,}")
        return found
    except CheckpointCorrupt as error:
        return json.dumps({"corrupt": str(error)}).encode()
    except CheckpointError as error:
        return json.dumps({"unusable": str(error)}).encode()


def listed(content: bytes, where: str) -> dict[str, Any]:
    """`digest`: the manifest's checksum of itself. `files`: path → `Stored`. Raises CheckpointCorrupt, CheckpointError."""
    try:
        body = checked(content, where)
        if not isinstance(body["training"], dict):
            raise TypeError("training state")
        stored = {name: _file(name, file) for name, file in body["files"].items()}
        program = body["training"].get("program")
        files = _with_manifest(content, stored) if program is None else _of_program(program["parts"], stored)
        return {"digest": body["sha256"], "files": files}
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointCorrupt(f"{where} is corrupt: {MANIFEST} names no such files ({error}).") from None


def _file(name: str, file: Mapping[str, Any]) -> Stored:
    """Raises KeyError, TypeError, ValueError."""
    size, sha256 = file["bytes"], file["sha256"]
    if not isinstance(size, int) or size < 0 or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{name[:80]!r} has no size or checksum")
    return name, size, sha256


def _with_manifest(content: bytes, stored: dict[str, Stored]) -> dict[str, Stored]:
    """The stored files with the manifest: together they are a checkpoint wherever they lie."""
    own = (MANIFEST, len(content), hashlib.sha256(content).hexdigest())
    return {_plain(name): file for name, file in stored.items()} | {MANIFEST: own}


def _of_program(parts: list[Any], stored: dict[str, Stored]) -> dict[str, Stored]:
    """The files under the program's own paths. Of several ranks each has a folder."""
    found = {}
    for part in parts:
        below_rank = f"rank-{int(part['rank']):05d}/" if len(parts) > 1 else ""
        for path, name in part["paths"].items():
            found[_relative(below_rank + _utf8(path))] = stored[_plain(name)]
    return found


def _utf8(path: str) -> str:
    """The path, in which bytes that are no UTF-8 are written as `\\xNN`: no answer in JSON can have them. Raises ValueError."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _plain(name: str) -> str:
    """The name of a file in the folder itself. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no name of a stored file")
    return name


def _relative(path: str) -> str:
    """A path without parts that lead elsewhere. Raises ValueError."""
    if path != str(PurePosixPath(path)) or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"{path[:80]!r} is no relative path")
    return path


if __name__ == "__main__":
    main(*sys.argv[1:])
