"""Artifacts of MLflow clients: the routes of MLflow's artifact proxy. They are stored as the job's files (`artifact_uploads.py`).

A request is answered when its file is in storage. Clients send a file again if the answer was lost, and equal content is then neither
stored nor counted twice. What clients list and download is what they have logged through this rank since its start. A logged model's
files are artifacts, too. Routes and answers are those of MLflow's `mlflow_artifacts.proto`.
"""

import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

from ..messages.artifact import Artifact, check_name
from .artifact_uploads import ArtifactUploads, LoggedFile, Refused
from .mlflow_fields import Json, MlflowError, invalid, missing, not_supported
from .mlflow_tracking import MlflowTracking

#: Before the names of the routes.
ROUTES: Final = "/api/2.0/mlflow-artifacts/"
#: What follows `artifacts/`, or is the `path` of a listing: an experiment, a run or logged model, and a path in it.
_PLACE: Final = re.compile(r"\d+/(?:([0-9a-f]{32})|models/(m-[0-9a-f]{32}))/artifacts(?:/(.*))?", re.DOTALL)
#: Clients that read this send the file in one request.
_NO_PARTS: Final = "Multipart upload is not supported for the current artifact repository"


@dataclass(frozen=True)
class Download:
    """A file to send. Reading `content` raises OSError."""

    size: int
    content: Iterator[bytes]


class MlflowArtifacts:
    """The artifacts of a rank's clients. Any thread may call it."""

    def __init__(self, tracking: MlflowTracking, uploads: ArtifactUploads | None) -> None:
        """`uploads`: None if the job has no storage for them."""
        self._tracking, self._uploads = tracking, uploads
        # The owner is a run or a logged model.
        self._stored: dict[str, dict[str, Artifact]] = {}  # owner → path → what is stored; as many as the job may log
        self._owners: dict[str, str] = {}  # the name of a stored file in the job → its owner
        self._storing: set[tuple[str, str]] = set()
        self._change = threading.Condition()

    def answer(self, method: str, route: str, query: Mapping[str, str], body: Iterator[bytes]) -> Json | Download:
        """The answer of a route, such as `artifacts/0/RUN/artifacts/a.txt`. Raises MlflowError, and what reading `body` raises."""
        kind, _, place = route.partition("/")
        if kind == "mpu":
            raise MlflowError("NOT_IMPLEMENTED", f"{_NO_PARTS}: send the file in one request")
        if kind == "artifacts" and method == "GET":
            return self._download(place) if place else self._list(query.get("path", ""))
        if kind == "artifacts" and method == "PUT":
            return self._store(place, body)
        raise not_supported(f"{method} {ROUTES}{route}"[:200])

    def _store(self, place: str, body: Iterator[bytes]) -> Json:
        owner, path = _read_place(place)
        name, uploads = self._name(owner, path), self._storage()
        spool = Path(uploads.storage.spool)
        try:
            spool.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=spool)  # noqa: SIM115  # what reading the body raises is no error of this file
        except OSError as error:
            raise _failed(f"{spool} on this node: {error.strerror}") from None
        with file:
            size = _receive(body, file, uploads.storage.file_bytes)
            with self._alone(owner, path) as known:
                try:
                    stored = uploads.put(file.fileno(), LoggedFile(name, None, "file", 0, size), known)
                except Refused as refused:
                    raise invalid(f"{path[:80]!r} is not stored: {refused}") from None
                self._stored.setdefault(owner, {})[path] = stored
                self._owners[name] = owner
        return {}

    @contextmanager
    def _alone(self, owner: str, path: str) -> Iterator[Artifact | None]:
        """What this path has. No other request stores it until the block ends."""
        with self._change:
            self._change.wait_for(lambda: (owner, path) not in self._storing)
            self._storing.add((owner, path))
        try:
            yield self._stored.get(owner, {}).get(path)
        finally:
            with self._change:
                self._storing.discard((owner, path))
                self._change.notify_all()

    def _name(self, owner: str, path: str) -> str:
        """The file's name in the job: as its metrics, those of the first run have no prefix. Raises MlflowError.

        Where the name of a run or model cannot be in a path, or a file of another one has the name, the id is in its place.
        """
        prefix = self._tracking.prefix(owner)
        if _why_no_name(f"{prefix}a") is not None or self._owners.get(prefix + path, owner) != owner:
            prefix = f"{owner}/"
        if (why := _why_no_name(path) or _why_no_name(prefix + path)) is not None:
            raise invalid(f"the artifact's path: {why}")
        return prefix + path

    def _storage(self) -> ArtifactUploads:
        if self._uploads is None:
            raise invalid("this job stores no artifacts: set MLFLOW_TRACKING_URI to a server of your own")
        return self._uploads

    def _list(self, place: str) -> Json:
        """Files and folders at a path, without what is in these folders."""
        owner, folder = _read_place(place)
        below = f"{folder}/" if folder else ""
        found: dict[tuple[str, bool], Json] = {}
        for path, stored in list(self._stored.get(owner, {}).items()):
            if path.startswith(below):
                name, in_folder, _ = path.removeprefix(below).partition("/")
                size = {} if in_folder else {"file_size": stored.bytes}
                found[name, bool(in_folder)] = {"path": name, "is_dir": bool(in_folder)} | size
        return {"files": [found[key] for key in sorted(found)]}

    def _download(self, place: str) -> Download:
        owner, path = _read_place(place)
        stored = self._stored.get(owner, {}).get(path)
        if stored is None:
            raise missing(
                f"this rank's MLflow clients have not logged {path[:80]!r} in this run or model since the rank's start: `shardyard "
                "artifacts JOB` lists all files of the job"
            )
        content = self._storage().content(stored)
        try:
            first = next(content, b"")
        except OSError as error:
            raise _failed(f"{path[:80]!r} in the job's storage: {error.strerror or error}") from None
        return Download(stored.bytes, chain([first], content))


def _receive(body: Iterator[bytes], file: IO[bytes], most: int) -> int:
    """Write a body to a file; its bytes. Clients read no answer before they have sent all, so what is not kept is read, too.

    Raises MlflowError, and what reading the body raises.
    """
    size = 0
    failed: OSError | None = None
    for block in body:
        size += len(block)
        if size <= most and failed is None:
            failed = _written(file, block)
    failed = failed or _written(file, b"")
    if size > most:
        remedy = "log it in parts, or ask the operator for a higher SHARDYARD_ARTIFACT_FILE_BYTES"
        raise invalid(f"the artifact has {size:,} bytes, and at most {most:,} are stored: {remedy}")
    if failed is not None:
        raise _failed(f"the cache on this node: {failed.strerror}")
    return size


def _written(file: IO[bytes], block: bytes) -> OSError | None:
    """Write a block through to the file. Why that failed: the reader of the body may raise OSError, too."""
    try:
        file.write(block)
        file.flush()
    except OSError as error:
        return error
    return None


def _why_no_name(name: str) -> str | None:
    try:
        check_name(name)
    except ValueError as error:
        return str(error)
    return None


def _read_place(place: str) -> tuple[str, str]:
    """The id of the run or logged model, and the path in it, which may be empty. Raises MlflowError."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise missing(f"{ascii(place)[:120]} is not the address of a run's or model's artifacts: use its artifact_uri")
    return found[1] or found[2], (found[3] or "").rstrip("/")


def decoded(route: str) -> str:
    """The text of a percent-encoded route. Raises MlflowError."""
    try:
        return unquote(route, errors="strict")
    except UnicodeDecodeError:
        raise invalid("the artifact's path is no UTF-8") from None


def _failed(message: str) -> MlflowError:
    return MlflowError("INTERNAL_ERROR", message)
