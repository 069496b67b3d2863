"""Errors that the API raises before a request reaches the service. Each has a stable code and a remedy."""

from pathlib import Path
from typing import Final

from ..service.errors import ShardyardError
from ..service.schemas.problem import FieldError
from ..workers.spec import MAX_SPEC_BYTES

#: What helps against a spec that is too large.
SHORTER_SPEC: Final = "Name large inputs by path (train.data.files) instead of writing them into the spec."


class SpecTooLarge(ShardyardError):
    """The body is larger than `most` bytes: 1 MiB for a spec."""

    code = "spec_too_large"

    def __init__(self, most: int = MAX_SPEC_BYTES, remedy: str = SHORTER_SPEC) -> None:
        super().__init__(f"The body is larger than {most} bytes.", remedy=remedy)


class InvalidEncoding(ShardyardError):
    """The body is not UTF-8 text."""

    code = "invalid_encoding"


class InvalidSyntax(ShardyardError):
    """The body is not well-formed YAML or JSON, or uses parts of them that a spec may not use."""

    code = "invalid_syntax"


class InvalidDocument(ShardyardError):
    """The document is not a job spec. `errors` has each finding with its field and remedy."""

    code = "invalid_spec"

    def __init__(self, errors: list[FieldError]) -> None:
        first = errors[0]
        where = f"{first.field}: " if first.field else ""
        more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{where}{first.message}{more}", field=first.field, remedy=first.remedy)
        self.errors = errors


class CodeFolderUnusable(ShardyardError):
    """The folder of code that a spec names cannot be uploaded."""

    code = "code_folder_unusable"


class JobWithoutCode(ShardyardError):
    """No code was uploaded for the job."""

    code = "job_without_code"


class UnsupportedMediaType(ShardyardError):
    """The body's content type is neither YAML nor JSON."""

    code = "unsupported_media_type"


class RequestTimeout(ShardyardError):
    """The body did not arrive in time."""

    code = "request_timeout"


class InvalidParameter(ShardyardError):
    """A query parameter or header has an invalid form."""

    code = "invalid_request"


class SpecFileMissing(ShardyardError):
    """The spec file cannot be read."""

    code = "missing_file"


class TokenUnreadable(ShardyardError):
    """The file of the access token cannot be read, or is not safe to use."""

    code = "token_unreadable"

    def __init__(self, path: Path, why: str, *, own: bool) -> None:
        super().__init__(
            f"The access token cannot be read from {path}. {why}.",
            remedy="Make a new one with: shardyard token --rotate"
            if own
            else "Correct SHARDYARD_TOKEN_PATH, or the file.",
        )


class WeakToken(ShardyardError):
    """A configured token has an invalid form, or could be guessed."""

    code = "weak_token"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"The text of {where} cannot be an access token.",
            remedy="Use 32 to 512 letters, digits, and -._~+/ in one line, such as: openssl rand -hex 32",
        )


class Unauthenticated(ShardyardError):
    """The request has no token or session of this control plane."""

    code = "unauthenticated"


class AlreadyRunning(ShardyardError):
    """The data folder has a control plane already."""

    code = "already_running"

    def __init__(self, url: str | None, pid: int | None, data_dir: Path) -> None:
        where = f" at {url} (pid {pid})" if url else ""
        super().__init__(
            f"The control plane of {data_dir} is already running{where}.",
            remedy="Use it, or stop it with: shardyard down",
        )


class NotStopped(ShardyardError):
    """A control plane has the data folder, and its process cannot be seen from here."""

    code = "not_stopped"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"A control plane has {data_dir}, and its process is not seen: it starts, or is on another machine or in another container.",
            remedy="Repeat it when the control plane has started, or stop it where it runs. Nothing was ended.",
        )


class DidNotStart(ShardyardError):
    """A background control plane ended, or was not ready in time."""

    code = "did_not_start"

    def __init__(self, message: str, log: str) -> None:
        super().__init__(f"{message}\n{log}".rstrip(), remedy="Start it in the foreground to see why: shardyard up")


class PortTaken(ShardyardError):
    """Another process listens on the port."""

    code = "port_taken"
