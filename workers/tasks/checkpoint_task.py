"""Ray tasks on a checkpoint, at a user's request: verify it, pin it, or export it as a Hugging Face folder.

Each is one Ray task on a node where gangs run, so that it reaches the same storage. It may be run again after a death, whatever the
dead one left. Its arguments and results are plain values. Imports neither torch nor Ray before it starts.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeVar

from ..checkpoint.errors import CheckpointError
from ..checkpoint.inspect import Inspection, inspect_checkpoint
from ..checkpoint.manifest import Manifest, read
from ..checkpoint.retention import pin, unpin
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at

T = TypeVar("T")

Kind = Literal["verify", "export", "pin", "unpin"]
Dtype = Literal["fp32", "bf16", "fp16", "fp64"]

#: Maximum number of corrupt files that are named, and of characters in a message.
NAMED: Final = 20
LONGEST: Final = 2000

_AGAIN: Final = "ask again."
_OTHER: Final = "Take another checkpoint; shardyard checkpoints JOB names them."
#: Error code → remedy.
REMEDIES: Final = {
    "checkpoint_deleted": _OTHER,
    "checkpoint_corrupt": _OTHER,
    "checkpoint_unusable": _OTHER,
    "storage_unreachable": f"See that every node reaches the job's storage, with credentials that may read and write it; then {_AGAIN}",
    "export_in_the_way": f"Move what lies there away, then {_AGAIN}",
    "export_failed": f"Make room for it, or repair the storage, then {_AGAIN}",
    "pin_failed": f"Make room for it, or repair the storage, then {_AGAIN}",
    "operation_lost": f"See the cluster's health, and whether a worker was killed for its memory; then {_AGAIN}",
    "operation_timeout": f"Give the dispatchers a larger SHARDYARD_OPERATION_S, then {_AGAIN}",
    "cluster_lost": f"Start a dispatcher that has the cluster's name and reaches its storage, then {_AGAIN}",
    "operation_failed": f"See the Ray worker's log for the traceback, then {_AGAIN}",
}


@dataclass(frozen=True)
class Operation:
    """`path` is the checkpoint's folder, `out` an export's, in `dtype`."""

    id: str
    kind: Kind
    path: str
    out: str | None = None
    dtype: Dtype | None = None


@dataclass(frozen=True)
class Outcome:
    """Either the `result`, or the `error` (code, message, remedy)."""

    result: dict[str, Any] | None = None
    error: dict[str, str] | None = None


class _Failed(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def perform(operation: Operation) -> Outcome:
    """Perform the operation. Never raises: every failure becomes the outcome's error."""
    try:
        return Outcome(_DO[operation.kind](operation))
    except _Failed as error:
        return failed(error.code, str(error))
    except (CheckpointError, StorageError) as error:
        return failed(error.code, str(error))
    except Exception as error:  # noqa: BLE001  # the outermost call: an error must reach the outcome
        traceback.print_exc()
        return failed("operation_failed", f"{type(error).__name__}: {error}")


def failed(code: str, message: str) -> Outcome:
    return Outcome(error={"code": code, "message": message[:LONGEST], "remedy": REMEDIES[code]})


def _verify(operation: Operation) -> dict[str, Any]:
    found = inspect_checkpoint(operation.path, verify=True)
    if found.verdict == "unknown":
        raise _Failed(found.code, str(found.why))
    why = None if found.why is None else found.why[:LONGEST]
    report = {"verdict": found.verdict, "message": why, "corrupt": list(found.corrupt[:NAMED])}
    return report | {"corrupt_files": len(found.corrupt), "files": found.files, "bytes": found.bytes}


def _export(operation: Operation) -> dict[str, Any]:
    import torch

    from ..checkpoint.verify import verify
    from ..huggingface.export import CONFIG, export, exported

    assert operation.out is not None and operation.dtype is not None
    torch.set_num_threads(1)  # ranks that train may share the node
    out = folder_at(operation.out)
    try:
        source, made = folder_at(operation.path), exported(out, operation.dtype)
        better = None if made is None else _better(source, out, without_tokenizer=made.tokenizer_missing is not None)
        if better is not None:
            verify(source, better)  # before the export that is there goes
        elif made is None:
            _refuse(inspect_checkpoint(operation.path, verify=False), operation.path)
        if made is None or better is not None:
            out.discard(CONFIG, complete=better is not None)
            made = export(source, out, operation.dtype, verified=better)
    except (CheckpointError, StorageError):
        raise
    except FileExistsError as error:
        raise _Failed("export_in_the_way", str(error)) from None
    except OSError as error:
        raise _Failed("export_failed", f"{out}: {error}") from error
    return asdict(made) | {"dtype": operation.dtype}


def _better(source: Folder, out: Folder, *, without_tokenizer: bool) -> Manifest | None:
    """The checkpoint's manifest if a new export is to replace the one at `out`; None also if that is not known.

    Either the job has saved its step again since, or the export is `without_tokenizer`, and a new one would have it.
    """
    from ..huggingface.export import checkpoint_of, has_tokenizer

    try:
        manifest = read(source)
    except (CheckpointError, StorageError):
        return None
    saved_since = checkpoint_of(out) not in (None, manifest.sha256)
    return manifest if saved_since or (without_tokenizer and has_tokenizer(manifest)) else None


def _pin(operation: Operation) -> dict[str, Any]:
    path = folder_at(operation.path)
    _refuse(inspect_checkpoint(operation.path, verify=False), operation.path)
    return {"pinned": True, "digest": _written(lambda: pin(path), path).sha256}


def _unpin(operation: Operation) -> dict[str, Any]:
    path = folder_at(operation.path)
    _written(lambda: unpin(path), path)
    return {"pinned": False, "digest": None}


def _written(write: Callable[[], T], path: Folder) -> T:
    try:
        return write()
    except (CheckpointError, StorageError):
        raise
    except OSError as error:
        raise _Failed("pin_failed", f"{path}: {error}") from error


def _refuse(found: Inspection, path: str) -> None:
    if found.verdict == "deleted":
        raise _Failed("checkpoint_deleted", f"{path} was deleted to make room, or by hand.")
    if found.verdict == "unknown":
        raise _Failed(found.code, str(found.why))


_DO: Final[Mapping[Kind, Callable[[Operation], dict[str, Any]]]] = {
    "verify": _verify,
    "export": _export,
    "pin": _pin,
    "unpin": _unpin,
}
