"""`shardyard.checkpoint` and `shardyard.resume`: a program's own checkpoints, in the storage of its job.

The rank's trainer process saves and fetches (`checkpoint_service.py`), so that the program needs neither libraries nor credentials of the
storage. Outside a job checkpoints are in a local folder. A state is written by `torch.save` and read by `torch.load(weights_only=True)`,
which runs no code of the file. Needs only the standard library, and torch for states.
"""

import contextlib
import operator
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, Literal

from . import rank_request
from .launcher_restarts import launcher_restarts
from .report_socket import LOCAL, socket_name

#: Variable that names the folder in which a state is written before it is saved. The file has no name there.
STAGING: Final = "SHARDYARD_STAGING"
#: File of a state.
STATE: Final = "state.pt"


class CheckpointFailed(RuntimeError):
    """A checkpoint could not be saved or read. The message says why, and names a remedy."""


class Checkpoint:
    """A checkpoint that is on this machine.

    `step`: as it was saved. `path`: folder with this rank's files, which other ranks of the machine may read, too. `rank`: whose part
    this is. `ranks`: all ranks that saved a part.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.step: int = found["step"]
        self.path = Path(found["path"])
        self.rank: int = found["rank"]
        self.ranks: tuple[int, ...] = tuple(found["ranks"])
        self._kind: str = found["kind"]

    def __repr__(self) -> str:
        return f"Checkpoint(step={self.step}, path={str(self.path)!r})"

    def load(self, map_location: Any = "cpu") -> Any:
        """The state that was saved, its tensors on `map_location`. Raises CheckpointFailed if files were saved instead."""
        if self._kind != "state":
            raise CheckpointFailed(f"step {self.step} was saved as files; read them in {self.path}.")
        import torch

        return torch.load(self.path / STATE, map_location=map_location, weights_only=True)


def checkpoint(
    what: str | os.PathLike[str] | Mapping[str, Any],
    step: int,
    *,
    ranks: Literal["one", "all"] = "one",
    folder: str | os.PathLike[str] = "checkpoints",
) -> None:
    """Save a checkpoint of `step`, from 0 to 99,999,999: `shardyard.checkpoint({"model": model.state_dict()}, step=100)`.

    `what`: a file or a folder that the program wrote, or a state of tensors, numbers, texts, lists and mappings. `ranks`: "one" if one
    rank calls it; "all" if every rank saves a part, of which the last makes the checkpoint complete. `folder`: where it is outside a job;
    there the ranks of several nodes cannot save together. Returns when the files are durable. A step that is saved again is replaced.
    Raises CheckpointFailed, TypeError, ValueError.
    """
    if ranks not in ("one", "all"):
        raise ValueError(f"ranks is {ranks!r}: name one or all")
    request = {"step": operator.index(step), "every": ranks == "all"}
    if isinstance(what, Mapping):
        with _written(what) as file:
            _send({"save": request | {"kind": "state", "path": STATE}}, folder, file.fileno())
    else:
        _send({"save": request | {"kind": "files", "path": str(Path(what).absolute())}}, folder)


def resume(*, rank: int | None = None, folder: str | os.PathLike[str] = "checkpoints") -> Checkpoint | None:
    """The newest complete checkpoint of the job, or of the one that it continues (`resume_from`); None: the program starts afresh.

    In a job it is the same on all ranks, and stays the same until the job or torchrun starts them again. Call it on all ranks if all
    saved a part. `rank`: whose part, if the ranks are others now; None: this rank's. `folder`: where it is outside a job.
    Raises CheckpointFailed.
    """
    found = _send({"resume": {"rank": rank}}, folder)
    return None if found["step"] is None else Checkpoint(found)


@contextlib.contextmanager
def _written(state: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """A file without a name that holds the state. It ends with the process. Raises CheckpointFailed."""
    import torch

    staging, handled = os.environ.get(STAGING), sys.exc_info()[1]
    with tempfile.TemporaryFile(dir=staging if staging and Path(staging).is_dir() else None) as file:
        try:  # what cannot be read again is refused now
            torch.save(state, file)
            file.flush()
            torch.load(f"/proc/self/fd/{file.fileno()}", map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:
            if (of_disk := _os_error(error, handled)) is not None:
                raise CheckpointFailed(f"the state could not be written: {of_disk}; make room for it.") from error
            why = str(error).partition("\n")[0]
            remedy = "keep tensors, numbers, texts, lists and mappings in it, or save a file of your own"
            raise CheckpointFailed(f"the state cannot be read again without running code: {why}; {remedy}.") from error
        yield file


def _os_error(error: BaseException | None, handled: BaseException | None) -> OSError | None:
    """The error itself, or the one from which it follows: torch raises RuntimeError where a file cannot be written.

    `handled`: what the program handles while it saves.
    """
    while error is not None and error is not handled:
        if isinstance(error, OSError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _send(request: dict[str, Any], folder: str | os.PathLike[str], *handles: int) -> dict[str, Any]:
    """The answer of the rank's trainer process, or outside a job of this process. Raises CheckpointFailed."""
    name = socket_name(os.environ)
    if name is None or LOCAL in os.environ:
        from .local_checkpoints import answer

        found = answer(Path(folder).absolute(), request, list(handles))
    else:
        try:
            found = rank_request.answer(name, request | {"restarts": launcher_restarts(os.environ)}, handles)
        except (OSError, ValueError) as error:
            raise CheckpointFailed(f"the rank's own process does not answer ({error!r}); it may be ending.") from error
    if "error" in found:
        raise CheckpointFailed(found["error"])
    return found
