"""The calls of the API, each with its request and the type of its response. Both clients use them."""

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from ...service.errors import ShardyardError
from ...service.schemas.artifact import LoggedArtifacts
from ...service.schemas.checkpoint import CheckpointFiles, Checkpoints
from ...service.schemas.code import CodeArchive
from ...service.schemas.curve import Curves
from ...service.schemas.exec import Exec, Execs
from ...service.schemas.fault import Fault
from ...service.schemas.history import HistoryPage
from ...service.schemas.incident import Incidents
from ...service.schemas.job import Job, Jobs
from ...service.schemas.log import Logs, LogSearchResult
from ...service.schemas.node import Cordon, Cordons, Node, Nodes
from ...service.schemas.operation import Operation, Operations
from ...service.schemas.preview import Preview
from ...service.schemas.problem import FieldError
from ...service.schemas.profile import Profile, Profiles
from ...service.schemas.rank import RankMetricsPage
from ...service.schemas.resource import ResourceReport
from ...service.schemas.secret import Secret, Secrets
from ...service.schemas.server import Server, Template, Templates
from ...service.schemas.session import SignInCode
from ...service.schemas.sparkline import LossSparkline, LossSparklines
from ...service.schemas.step import Metrics
from ...service.schemas.submitted_spec import SubmittedSpec
from ...service.schemas.system import SystemCurves
from ...service.schemas.timeline import Plan, Timeline
from ...service.schemas.trace import Trace, Traces, TraceSpans, TraceSummary
from ...service.spec import CommandSpec, JobKind, JobSpec
from ...strategies.layout import Layout
from ...workers.code_archive import Manifest
from ...workers.messages import json_codec
from .. import spec_file
from ..errors import InvalidParameter
from ..spec_file import GivenSpec
from . import code_folder
from .code_folder import PackedCode
from .transport import ApiError, Call

Spec = GivenSpec | JobSpec | CommandSpec | Mapping[str, Any] | str | Path
Level = Literal["error", "warning"]
Stream = Literal["stdout", "stderr"]

_JSON = {"Content-Type": "application/json"}
#: Seconds until an answer about code: the server asks storage for up to 600 s (a check reads 2 GiB), then answers that it has failed.
_CODE_S: Final = 660.0
#: Seconds until an answer that needs stored files: the server asks storage for up to 150 s, then answers that it has failed.
_STORAGE_S: Final = 160.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def given(spec: Spec) -> GivenSpec:
    """The spec as plain data, and the text of its file. Raises `ApiError` for a file that cannot be read."""
    with _as_api_error():
        return spec_file.read(spec)


def document(spec: Spec) -> Any:
    """The spec as plain data. Raises `ApiError` for a file that cannot be read."""
    return given(spec).document


@contextmanager
def packed(document: Any) -> Iterator[PackedCode | None]:
    """The archive of the folder that the spec names; None if there is nothing to upload. Raises `ApiError`."""
    with ExitStack() as stack:
        with _as_api_error():
            found = stack.enter_context(code_folder.packed(document))
        yield found


def submit(document: Any, key: str | None, spec: GivenSpec) -> Call[Job]:
    """`spec`: what the document was made of. The text of a file is sent with its comments, and the document's values."""
    sent = spec_file.sent_text(spec, document)
    headers = _keyed(key) | {"Content-Type": f"application/{sent.format}"}
    return Call("POST", "/v1/jobs", Job.model_validate, content=sent.text.encode(), headers=headers)


def preview(document: Any) -> Call[Preview]:
    content = json.dumps(document).encode()
    return Call("POST", "/v1/jobs/preview", Preview.model_validate, content=content, headers=_JSON)


def begin_code(manifest: Manifest) -> Call[CodeArchive]:
    content = json_codec.dumps(manifest)
    return Call("POST", "/v1/code", CodeArchive.model_validate, content=content, headers=_JSON, answer_s=_CODE_S)


def put_code_part(archive: str, number: int, content: bytes) -> Call[CodeArchive]:
    path, headers = f"/v1/code/{archive}/parts/{number}", {"Content-Type": "application/octet-stream"}
    return Call("PUT", path, CodeArchive.model_validate, content=content, headers=headers, answer_s=_CODE_S)


def code(archive: str) -> Call[CodeArchive]:
    return Call("GET", f"/v1/code/{_quoted(archive)}", CodeArchive.model_validate)


def artifacts(name: str, *, kind: str | None, **wanted: Any) -> Call[LoggedArtifacts]:
    return Call("GET", _of(name, "/artifacts"), LoggedArtifacts.model_validate, params={**wanted, "type": kind})


def artifact(name: str, artifact_name: str, step: int | None) -> Call[bytes]:
    path = _of(name, f"/artifacts/{quote(artifact_name)}")
    return _content(path, {"step": step})


def checkpoint_files(name: str, step: int, *, after: str | None, limit: int) -> Call[CheckpointFiles]:
    path, params = _of(name, f"/checkpoints/{step}/files"), {"after": after, "limit": limit}
    return Call("GET", path, CheckpointFiles.model_validate, params=params, answer_s=_STORAGE_S)


def checkpoint_file(name: str, step: int, file: str) -> Call[bytes]:
    return _content(_of(name, f"/checkpoints/{step}/files/{quote(file)}"), {})


def sparklines(jobs: Sequence[str]) -> Call[list[LossSparkline]]:
    return Call(
        "GET", "/v1/sparklines", lambda body: LossSparklines.model_validate(body).items, params={"job": list(jobs)}
    )


def jobs(**filters: Any) -> Call[Jobs]:
    labels = [f"{key}={value}" for key, value in (filters.pop("label") or {}).items()]
    return Call("GET", "/v1/jobs", Jobs.model_validate, params={**filters, "label": labels})


def job(name: str) -> Call[Job]:
    return Call("GET", _of(name), Job.model_validate)


def edit(job_name: str, **changes: Any) -> Call[Job]:
    content = json.dumps({field: value for field, value in changes.items() if value is not None}).encode()
    return Call("PATCH", _of(job_name), Job.model_validate, content=content, headers=_JSON)


def cancel(name: str) -> Call[Job]:
    return Call("POST", _of(name, "/cancel"), Job.model_validate)


def pause(name: str) -> Call[Job]:
    return Call("POST", _of(name, "/pause"), Job.model_validate)


def resume(name: str) -> Call[Job]:
    return Call("POST", _of(name, "/resume"), Job.model_validate)


def retry(name: str, key: str | None) -> Call[Job]:
    return Call("POST", _of(name, "/retry"), Job.model_validate, headers=_keyed(key))


def delete(job_id: str) -> Call[Job]:
    return Call("DELETE", _of(job_id), Job.model_validate)


def undelete(job_id: str) -> Call[Job]:
    return Call("POST", _of(job_id, "/undelete"), Job.model_validate)


def reshard(name: str, layout: Layout | Mapping[str, Any]) -> Call[Job]:
    wanted = layout.model_dump(mode="json") if isinstance(layout, Layout) else dict(layout)
    content = json.dumps({"layout": wanted}).encode()
    return Call("POST", _of(name, "/reshard"), Job.model_validate, content=content, headers=_JSON)


def inject_fault(name: str, key: str | None, **wanted: Any) -> Call[Fault]:
    content = json.dumps({field: value for field, value in wanted.items() if value is not None}).encode()
    return Call("POST", _of(name, "/faults"), Fault.model_validate, content=content, headers=_keyed(key))


def trace(name: str, steps: int, key: str | None) -> Call[Trace]:
    return Call("POST", _of(name, "/trace"), Trace.model_validate, params={"steps": steps}, headers=_keyed(key))


def traces(name: str, before: str | None, limit: int) -> Call[Traces]:
    return Call("GET", _of(name, "/traces"), Traces.model_validate, params={"before": before, "limit": limit})


def execute(name: str, key: str | None, command: Sequence[str], **wanted: Any) -> Call[Exec]:
    """Raises `ApiError` for a command that is one text: each of its letters would be a word."""
    if isinstance(command, str):
        with _as_api_error():
            remedy = 'Write a list, such as ["sh", "-c", "ls *.pt"].'
            raise InvalidParameter("The command is a text, not a list of words.", field="command", remedy=remedy)
    content = json.dumps({"command": list(command), **wanted}).encode()
    return Call("POST", _of(name, "/execs"), Exec.model_validate, content=content, headers=_keyed(key))


def execs(name: str, before: str | None, limit: int) -> Call[Execs]:
    return Call("GET", _of(name, "/execs"), Execs.model_validate, params={"before": before, "limit": limit})


def profile(name: str, key: str | None, **wanted: Any) -> Call[Profile]:
    content = json.dumps(wanted).encode()
    return Call("POST", _of(name, "/profiles"), Profile.model_validate, content=content, headers=_keyed(key))


def profiles(name: str, before: str | None, limit: int) -> Call[Profiles]:
    return Call("GET", _of(name, "/profiles"), Profiles.model_validate, params={"before": before, "limit": limit})


def trace_summary(name: str, trace_id: str, step: int | None) -> Call[TraceSummary]:
    return Call("GET", _of_trace(name, trace_id), TraceSummary.model_validate, params={"step": step})


def trace_spans(name: str, trace_id: str, **wanted: Any) -> Call[TraceSpans]:
    return Call("GET", _of_trace(name, trace_id, "/spans"), TraceSpans.model_validate, params=wanted)


def perfetto(name: str, trace_id: str) -> Call[bytes]:
    return Call("GET", _of_trace(name, trace_id, "/perfetto"), bytes, form="bytes")


def metrics(name: str, since: int, max_points: int) -> Call[Metrics]:
    params = {"since": since, "max_points": max_points}
    return Call("GET", _of(name, "/metrics"), Metrics.model_validate, params=params)


def curves(name: str, names: str | Sequence[str], *, from_step: int, to_step: int | None, buckets: int) -> Call[Curves]:
    wanted = names if isinstance(names, str) else ",".join(names)
    params = {"names": wanted, "from": from_step, "to": to_step, "buckets": buckets}
    return Call("GET", _of(name, "/curves"), Curves.model_validate, params=params)


def system(
    name: str, metric: str, *, since: float | None, until: float | None, after: str | None
) -> Call[SystemCurves]:
    params = {"name": metric, "since": since, "until": until, "after": after}
    return Call("GET", _of(name, "/system"), SystemCurves.model_validate, params=params)


def incidents(name: str, *, after: int, newest: bool, before: int | None, limit: int) -> Call[Incidents]:
    order = {"newest": "true", "before": before} if newest else {"after": after}
    return Call("GET", _of(name, "/incidents"), Incidents.model_validate, params={**order, "limit": limit})


def timeline(name: str) -> Call[Timeline]:
    return Call("GET", _of(name, "/timeline"), Timeline.model_validate)


def history(name: str, before: int | None, limit: int) -> Call[HistoryPage]:
    return Call("GET", _of(name, "/history"), HistoryPage.model_validate, params={"before": before, "limit": limit})


def submitted_spec(name: str) -> Call[SubmittedSpec]:
    return Call("GET", _of(name, "/submitted-spec"), SubmittedSpec.model_validate)


def plan(name: str) -> Call[Plan]:
    return Call("GET", _of(name, "/plan"), Plan.model_validate)


def checkpoints(name: str, before: int | None, limit: int) -> Call[Checkpoints]:
    return Call("GET", _of(name, "/checkpoints"), Checkpoints.model_validate, params={"before": before, "limit": limit})


def verify_checkpoint(name: str, position: int, key: str | None) -> Call[Operation]:
    return Call("POST", _of(name, f"/checkpoints/{position}/verify"), Operation.model_validate, headers=_keyed(key))


def pin_checkpoint(name: str, position: int, key: str | None, *, pinned: bool) -> Call[Operation]:
    path = _of(name, f"/checkpoints/{position}/{'pin' if pinned else 'unpin'}")
    return Call("POST", path, Operation.model_validate, headers=_keyed(key))


def export_checkpoint(name: str, position: int, dtype: str, key: str | None) -> Call[Operation]:
    path = _of(name, f"/checkpoints/{position}/export")
    return Call("POST", path, Operation.model_validate, params={"dtype": dtype}, headers=_keyed(key))


def operation(name: str, operation_id: str) -> Call[Operation]:
    return Call("GET", _of(name, f"/operations/{_quoted(operation_id)}"), Operation.model_validate)


def operations(name: str, before: str | None, limit: int) -> Call[Operations]:
    return Call("GET", _of(name, "/operations"), Operations.model_validate, params={"before": before, "limit": limit})


def ranks(name: str, before: int | None, limit: int) -> Call[RankMetricsPage]:
    return Call("GET", _of(name, "/ranks"), RankMetricsPage.model_validate, params={"before": before, "limit": limit})


def resources(name: str) -> Call[ResourceReport]:
    return Call("GET", _of(name, "/resources"), ResourceReport.model_validate)


def logs(name: str, *, rank: int | None, after: int, limit: int, tail: int | None, around: int | None) -> Call[Logs]:
    params = {"after": after, "limit": limit, "around": around} if tail is None else {"tail": tail}
    return Call("GET", _of(name, "/logs"), Logs.model_validate, params={"rank": rank, **params})


def search_logs(name: str, **wanted: Any) -> Call[LogSearchResult]:
    return Call("GET", _of(name, "/logs/search"), LogSearchResult.model_validate, params=wanted)


def nodes() -> Call[list[Node]]:
    return Call("GET", "/v1/nodes", lambda body: Nodes.model_validate(body).items)


def cordon(node: str, seconds: float | None, message: str) -> Call[Node]:
    params = {"seconds": seconds, "message": message}
    return Call("POST", f"/v1/nodes/{_quoted(node)}/cordon", Node.model_validate, params=params)


def uncordon(node: str) -> Call[Node]:
    return Call("POST", f"/v1/nodes/{_quoted(node)}/uncordon", Node.model_validate)


def cordons(limit: int) -> Call[list[Cordon]]:
    return Call("GET", "/v1/cordons", lambda body: Cordons.model_validate(body).items, params={"limit": limit})


def secrets() -> Call[list[Secret]]:
    return Call("GET", "/v1/secrets", lambda body: Secrets.model_validate(body).items)


def set_secret(name: str, value: str) -> Call[Secret]:
    content = json.dumps({"value": value}).encode()
    return Call("PUT", f"/v1/secrets/{_quoted(name)}", Secret.model_validate, content=content, headers=_JSON)


def remove_secret(name: str) -> Call[list[Secret]]:
    return Call("DELETE", f"/v1/secrets/{_quoted(name)}", lambda body: Secrets.model_validate(body).items)


def job_schema(kind: JobKind) -> Call[dict[str, Any]]:
    return Call("GET", "/v1/schema/job", dict, params={"kind": kind})


def server() -> Call[Server]:
    return Call("GET", "/v1/server", Server.model_validate)


def sign_in_code() -> Call[SignInCode]:
    return Call("POST", "/v1/session/code", SignInCode.model_validate)


def templates() -> Call[list[Template]]:
    return Call("GET", "/v1/templates", lambda body: Templates.model_validate(body).items)


def events(job_id: str, *, logs: bool, rank: int | None, ranks: bool) -> Call[None]:
    """The stream of a job's events."""
    params = {"logs": "true" if logs else None, "rank": rank, "ranks": "true" if ranks else None}
    return Call("GET", _of(job_id, "/events"), lambda _: None, params=params)


@contextmanager
def _as_api_error() -> Iterator[None]:
    """What is wrong on this side is raised as what the server finds wrong."""
    try:
        yield
    except ShardyardError as error:
        where = FieldError(field=error.field, message=error.message, remedy=error.remedy)
        raise ApiError(error.code, error.message, None, [where]) from None


def _content(path: str, params: Mapping[str, Any]) -> Call[bytes]:
    """The call for a stored file."""
    headers = {"Accept-Encoding": "identity"}
    return Call("GET", path, bytes, params=params, headers=headers, form="bytes", answer_s=_STORAGE_S)


def _of(name: str, what: str = "") -> str:
    return f"/v1/jobs/{_quoted(name)}{what}"


def _of_trace(name: str, trace_id: str, what: str = "") -> str:
    return _of(name, f"/traces/{_quoted(trace_id)}{what}")


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _keyed(key: str | None) -> dict[str, str]:
    """The headers with an idempotency key, which stays the same over all tries of a call. Raises `ApiError`."""
    if key and not _KEY.fullmatch(key):
        message = f"{key[:80]!r} is not an idempotency key."
        remedy = "Use 1 to 255 letters, digits and signs of ASCII, without spaces."
        with _as_api_error():
            raise InvalidParameter(message, field="Idempotency-Key", remedy=remedy)
    return {**_JSON, "Idempotency-Key": key or str(uuid.uuid4())}
