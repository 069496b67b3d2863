"""Reads the environment once into one frozen value. No other module reads it."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ..workers.storage.uri import Address, below, is_bucket, refuse_unreachable
from .errors import InvalidSetting
from .ids import CLUSTER
from .policies.cordon import Limits
from .policies.limits import ArtifactLimits, Rules
from .policies.retry import Backoff

#: Settings with a default that a blank does not replace: it would mean the current folder, and as the host all interfaces.
_NEVER_BLANK: Final = frozenset({"data_dir", "storage", "cache", "host"})


def _database(data: dict[str, Any]) -> SecretStr:
    return SecretStr(f"sqlite+aiosqlite:///{data['data_dir']}/shardyard.db")


def _absolute_path(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"this machine has no user {str(path).partition('/')[0]}") from None


def _below(name: str) -> Any:
    def path(data: dict[str, Any]) -> Path:
        return Path(data["data_dir"]) / name

    return path


class NodeGroup(BaseModel):
    """A number of equal nodes, the CPUs and GPUs of each, and the image that jobs choose them by; empty: the cluster's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(ge=0, le=100_000)
    cpus: float = Field(0.0, ge=0, allow_inf_nan=False)
    gpus: int = Field(0, ge=0)
    image: str = Field("", max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")


class Settings(BaseSettings):
    """All settings, from `SHARDYARD_…` variables. Seconds where a name ends in `_s`."""

    model_config = SettingsConfigDict(env_prefix="SHARDYARD_", frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Field(
        Path("~/.shardyard"),
        validate_default=True,
        description="Folder of the database, checkpoints, caches and logs, where no other setting places them.",
    )
    database_url: SecretStr = Field(
        default_factory=_database, description="`sqlite+aiosqlite:///FILE`, or `postgresql+psycopg://…` in production."
    )
    storage: Address = Field(
        default_factory=_below("checkpoints"),
        validate_default=True,
        description="Jobs' checkpoints: a folder that every node sees, or `s3://bucket/prefix`.",
    )
    cache: Path = Field(default_factory=_below("cache"), description="Token caches, one folder per node.")
    scratch: Path | None = Field(
        None,
        description="Folder on a fast local disk of each node, for the training state of jobs with `offload.to: disk`; unset: `scratch` "
        "in the cache.",
    )

    ray_address: str | None = Field(None, description="An existing Ray cluster; unset: an embedded one is started.")
    ray_auth_token_path: Path | None = Field(None, description="File (0600) with the Ray cluster's token.")
    cluster: str = Field(
        CLUSTER,
        pattern="^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$",
        description="Name of the cluster, for dispatchers of several clusters that share a database. Keep it for the cluster's life.",
    )
    cpu_ranks_per_core: int = Field(4, ge=1, le=64, description="CPU ranks that share one core.")
    warm_workers: int = Field(
        10,
        ge=0,
        le=1000,
        description="Maximum number of idle Ray workers that the embedded head keeps, so that gangs start at once.",
    )
    max_ranks: int | None = Field(
        None,
        ge=1,
        description="Number of devices that the cluster can grow to; unset: it does not grow. Jobs that need more than are there wait for "
        "nodes, and others go first.",
    )

    capacity: Annotated[tuple[NodeGroup, ...] | None, NoDecode] = Field(
        None,
        description='Capacity of the complete cluster, as JSON: `[{"nodes": 2, "cpus": 32, "gpus": 8}, …]`, with `image` for nodes that '
        "have one. While nodes are missing, jobs that fit on it wait, and `auto` does not replace GPUs by CPUs; unset: the largest "
        "capacity seen of each image.",
    )

    url: str | None = Field(
        None, description="Address of the API for client and CLI; unset: that of the data folder's control plane."
    )
    token: SecretStr | None = Field(
        None,
        description="Access token of the server, the client and the CLI; unset: the file `token` in the data folder.",
    )
    token_path: Path | None = Field(None, description="File with the access token, such as a mounted Secret.")
    dry_run_s: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="Maximum time for which client and CLI dry-run a module of the user's own when it is submitted, for its memory plan; a "
        "preview may take ten times as long. 0: never.",
    )
    secrets_key: SecretStr | None = Field(
        None,
        description="Key by which stored secrets are encrypted; several, separated by commas: the first encrypts, all decrypt. "
        "unset: the file `secrets.key` in the data folder.",
    )
    secrets_key_path: Path | None = Field(None, description="File with that key, such as a mounted Secret.")
    host: str = "127.0.0.1"
    port: int = Field(8400, ge=0, le=65535)
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default_factory=tuple,
        description="Host names that requests from beyond loopback may use, separated by commas; `*.example.com`, or `*` for any. "
        "IP addresses and the machine's own name are always allowed.",
    )
    insecure_allow_remote: bool = Field(
        False, description="Accept requests from beyond loopback without a token, behind a proxy that authenticates."
    )
    local_files: bool = Field(
        False, description="The API runs where the trainers' files are visible, and checks that they exist."
    )

    fault_injection: bool = Field(False, description="Let users inject faults into running jobs.")

    exec: bool = Field(
        False,
        description="Let users run commands, open terminals and reach ports beside the ranks of running jobs, as the jobs' user.",
    )

    lease_s: float = Field(
        15.0, gt=0, description="A dispatcher that has not renewed its leases for this many seconds loses its jobs."
    )
    poll_s: float = Field(
        0.5, gt=0, description="Interval at which a dispatcher reads the queue without a notification."
    )
    pull_s: float = Field(10.0, gt=0, description="Maximum time that one pull of a gang's events waits.")
    system_s: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="Interval at which the CPUs, memory, disks, network and GPUs of nodes and ranks are sampled; 0: never.",
    )
    heartbeat_path: Path | None = Field(
        None,
        description="File for probes, which a dispatcher touches each time it has read the queue, also if the database failed. It exists "
        "once the dispatcher has looked at its cluster; if it is minutes old, the dispatcher hangs; unset: none.",
    )
    nodes_s: float = Field(3.0, gt=0, description="Interval at which the nodes are listed.")
    stray_gangs_s: float = Field(10.0, gt=0, description="Interval at which gangs without a job are removed.")
    retry_backoff_s: float = Field(
        5.0,
        gt=0,
        description="Wait before a job that lost its attempt is retried; doubled after each retry without progress.",
    )
    retry_backoff_max_s: float = Field(300.0, gt=0, description="Maximum wait before a retry.")
    cordon_faults: int = Field(
        3,
        ge=0,
        description="Number of machine faults after which a node is cordoned; 0: never. "
        "A job with all but one of them on another node counts for one less.",
    )
    cordon_window_s: float = Field(3600.0, gt=0, description="Time during which a machine fault counts.")
    cordon_s: float = Field(
        600.0, gt=0, description="Duration of a node's first cordon; doubled with each further one."
    )
    cordon_max_s: float = Field(86_400.0, gt=0, description="Maximum duration of a cordon.")
    cancel_s: float = Field(3.5, gt=0, description="Time that a cancelled gang has to stop before it is killed.")
    reshard_s: float = Field(
        600.0,
        gt=0,
        description="Least time that a gang has to save and stop before its job is paused, or continues with another layout. "
        "It has three times as long as the newest save took, if that is more.",
    )

    artifact_file_bytes: int = Field(
        1 << 30, ge=1, le=1 << 40, description="Bytes of the largest file that a program may log."
    )
    artifact_bytes: int = Field(20 << 30, ge=1, description="Bytes of all files that a job's programs may log.")
    artifact_files: int = Field(10_000, ge=0, le=100_000, description="Number of files that a job's programs may log.")

    files_cache_gib: float = Field(
        50.0,
        gt=0,
        le=1_048_576,
        description="GiB of fetched `files` of all jobs that each node keeps; the least recently used go.",
    )

    operations_at_once: int = Field(
        2, ge=1, le=64, description="Number of checkpoints that a dispatcher verifies or exports at the same time."
    )
    operation_s: float = Field(14_400.0, gt=0, description="Time that verifying or exporting a checkpoint may take.")

    undelete_s: float = Field(
        86_400.0,
        ge=0,
        description="Time for which a deleted job can be restored. Then its files and records are removed.",
    )
    retention_s: float = Field(
        600.0,
        gt=0,
        description="Interval at which dispatchers remove deleted jobs, and records that are too old or too large.",
    )
    keep_logs_days: float = Field(
        0.0, ge=0, description="Days after a job's end for which its log lines are kept; 0: forever."
    )
    keep_metrics_days: float = Field(
        0.0,
        ge=0,
        description="Days after a job's end for which its steps, logged metrics, rank samples and system metrics are kept; 0: forever.",
    )
    keep_events_days: float = Field(
        0.0,
        ge=0,
        description="Days after a job's end for which its incidents, repairs, validations and faults are kept; 0: forever. "
        "Its states, checkpoints, plan and sources of files stay.",
    )
    keep_traces_days: float = Field(
        0.0, ge=0, description="Days after a job's end for which its traces are kept; 0: forever."
    )
    keep_jobs_days: float = Field(
        0.0,
        ge=0,
        description="Days after a job's end after which it is deleted, with its checkpoints; 0: never. Pinned jobs are kept. "
        "An ended sweep goes with the last of its jobs.",
    )

    keep_logs_gib: float = Field(
        0.0,
        ge=0,
        le=1_048_576,
        description="GiB of log lines of all jobs together; a line counts with its text and 200 bytes. Beyond it the oldest lines are "
        "removed, first of the job that ended first. Running and pinned jobs count and keep theirs, but leave the others half of the "
        "bound; 0: no bound.",
    )
    keep_traces_gib: float = Field(
        0.0,
        ge=0,
        le=1_048_576,
        description="GiB of traces of all jobs together. Beyond it the oldest traces are removed, first of the job that ended first. "
        "Running and pinned jobs count and keep theirs, but leave the others half of the bound; 0: no bound.",
    )

    def __init__(self, **given: Any) -> None:
        """Raises InvalidSetting, which names the variable."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _refusal(error) from None

    @model_validator(mode="before")
    @classmethod
    def _unset_where_empty(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Without what is blank, where that is no choice, as files of variables write what is not set."""
        optional = {name for name, one in cls.model_fields.items() if one.default is None} | _NEVER_BLANK
        blank = {name for name, value in given.items() if isinstance(value, str) and not value.strip()}
        return {name: value for name, value in given.items() if name not in blank & optional}

    @field_validator("storage")
    @classmethod
    def _absolute_address(cls, where: str) -> str:
        refuse_unreachable(where)
        return where if is_bucket(where) else str(_absolute_path(where))

    @field_validator("database_url")
    @classmethod
    def _absolute_file(cls, url: SecretStr) -> SecretStr:
        """A relative file of SQLite counts from the folder in which the process starts, which it may leave."""
        driver, found, file = url.get_secret_value().partition(":///")
        if not found or not driver.startswith("sqlite") or file.startswith(("/", ":memory:", "file:")) or not file:
            return url
        return SecretStr(f"{driver}:///{Path(file).absolute()}")

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _by_commas(cls, names: Any) -> Any:
        return [name.strip().lower() for name in names.split(",") if name.strip()] if isinstance(names, str) else names

    @field_validator("capacity", mode="before")
    @classmethod
    def _from_json(cls, groups: Any) -> Any:
        if not isinstance(groups, str):
            return groups
        try:
            return json.loads(groups)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'must be JSON such as [{{"nodes": 2, "cpus": 32, "gpus": 8}}]: {error}') from None

    @field_validator(
        "data_dir", "cache", "scratch", "ray_auth_token_path", "token_path", "secrets_key_path", "heartbeat_path"
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else _absolute_path(path)

    @property
    def rules(self) -> Rules:
        limits = Limits(self.cordon_faults, self.cordon_window_s, self.cordon_s, self.cordon_max_s)
        artifacts = ArtifactLimits(self.artifact_file_bytes, self.artifact_bytes, self.artifact_files)
        return Rules(Backoff(self.retry_backoff_s, self.retry_backoff_max_s), limits, artifacts)

    def artifacts(self, job_id: str) -> str:
        """Where the content of a job's logged files is, by its digest."""
        return below(below(self.storage, "artifacts"), job_id)

    def files(self, job_id: str) -> str:
        """Where it is noted what the sources of a job's files had."""
        return below(below(self.storage, "files"), job_id)

    @property
    def database(self) -> str:
        """The database's URL with its password, for drivers only."""
        return self.database_url.get_secret_value()

    @property
    def database_shown(self) -> str:
        """The database's URL without its password, for logs and messages."""
        from .database_url import parse, shown  # the command line reads settings too, and never needs a database

        return shown(parse(self.database))


def _refusal(error: ValidationError) -> InvalidSetting:
    """Names every invalid variable. Values are not repeated, since they may be passwords."""
    found = [item for item in error.errors(include_url=False, include_input=False) if item["loc"]]
    found = [item for item in found if item["type"] != "default_factory_not_called"]
    names = [f"SHARDYARD_{str(item['loc'][0]).upper()}" for item in found]
    reasons = [item["msg"].removeprefix("Value error, ").rstrip(".") for item in found]
    message = "; ".join(f"{name}: {why}" for name, why in zip(names, reasons, strict=True))
    what = (
        Settings.model_fields[str(found[0]["loc"][0])].description
        if str(found[0]["loc"][0]) in Settings.model_fields
        else None
    )
    remedy = f"Correct {' and '.join(dict.fromkeys(names))}, or unset it." + (
        f" {what}" if what and len(found) == 1 else ""
    )
    return InvalidSetting(f"{message}.", field=names[0], remedy=remedy)
