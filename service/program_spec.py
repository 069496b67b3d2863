"""Parts of the spec of a job that runs a program: its arguments, its code, and its Python environment. Imports no torch and no Ray."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from ..strategies.layout import Refusal
from ..workers.spec_part import PLAIN_TEXT, PathText, SpecPart
from ..workers.storage.uri import Storage

#: An argument of a program, which no null character can be in.
Argument = Annotated[str, StringConstraints(max_length=32_768, pattern=r"^[^\x00]*$")]


#: A pattern as in a `.gitignore` file.
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=PLAIN_TEXT)]


def has_credentials(url: str) -> bool:
    """Whether an address may hold a token: as a user or password of http, or as a password of anything else."""
    scheme, found, rest = url.partition("://")
    if not found:
        return False
    if scheme.removeprefix("git+") in ("http", "https"):
        return "@" in rest.partition("?")[0].partition("/")[0] or "?" in rest
    return urlsplit(url).password is not None


class Code(SpecPart):
    """A folder, or a repository, whose files are uploaded with the job. Every node gets a copy, in which the program starts."""

    dir: PathText | None = Field(
        None,
        description="Folder on the machine that submits the job. The command line and the Python client upload its files: those that git "
        "knows or does not ignore, or outside a repository all that no .gitignore file excludes.",
    )
    git: PathText | None = Field(
        None,
        description="Address of a git repository, such as https://github.com/pytorch/examples, in the place of `dir`. The command line and "
        "the Python client clone it, with the credentials that git has there, and upload its files.",
    )
    ref: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        pattern=PLAIN_TEXT,
        description="Branch, tag or full commit of `git`. null: the default branch.",
    )
    ignore: list[Pattern] = Field(
        default_factory=list,
        max_length=256,
        description="Patterns of further files to leave out, as in a .gitignore file.",
    )
    archive: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="The uploaded archive, by its SHA-256. The command line and the Python client set it.",
    )

    @model_validator(mode="after")
    def _is_of_one_place(self) -> "Code":
        if (self.dir is None) == (self.git is None):
            raise ValueError("code has either dir, a folder to upload, or git, the address of a repository")
        if self.ref is not None and self.git is None:
            raise ValueError("ref is a branch, tag or full commit of git, which is not given")
        if self.git is not None and has_credentials(self.git):
            raise Refusal(
                "git",
                "The address has a user, a password or a token, and every user can read the specs of all jobs.",
                "Leave it out: the repository is cloned where the job is submitted, with the credentials that git has there.",
            )
        return self

    @property
    def source(self) -> str:
        """Where the files come from."""
        return self.dir or f"{self.git}{f' at {self.ref}' if self.ref else ''}"


#: A requirement of pip: a name, with versions or a URL.
RequirementText = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=PLAIN_TEXT)]


class Environment(SpecPart):
    """The Python environment of a job's program. Each node builds it once with uv, and keeps it for other jobs."""

    python: Annotated[list[RequirementText], Field(min_length=1, max_length=1024)] | PathText = Field(
        description="A file of requirements in the folder of `code`, or as every node sees it: a .txt file, pyproject.toml, or uv.lock "
        "with the pyproject.toml beside it. Or a list of requirements, such as [einops==0.8, timm].",
    )
    version: str | None = Field(
        None,
        pattern=r"^3\.\d{1,2}(\.\d{1,3})?$",
        description="Version of Python, such as 3.12. uv downloads it where a node lacks it. null: that of the nodes' Ray workers.",
    )
    inherit: bool = Field(
        False,
        description="Whether the program can import what the nodes' Ray workers have, such as torch, where the environment lacks it. Such "
        "packages are not installed again.",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_no_mapping_of_variables(cls, data: Any) -> Any:
        if isinstance(data, dict) and data and not cls.model_fields.keys() & data.keys():
            raise Refusal(
                "",
                f"{next(iter(data))!r:.60} is no key of env, which asks for Python packages.",
                "Write packages as env: {python: [einops]}, and variables as resources: {env: {NAME: value}}.",
            )
        return data


#: A path at which the program finds files, relative to its code.
FileTarget = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=PLAIN_TEXT)]


class ProgramCheckpoints(SpecPart):
    """Where the program's checkpoints are, and how many stay. It saves them with `shardyard.checkpoint`."""

    keep: int = Field(2, ge=1, le=1000, description="Number of newest checkpoints to keep.")
    uri: Storage | None = Field(
        None,
        description="Folder of the checkpoints, `s3://bucket/prefix` or a path; the job's own folder is made in it. null: the server's.",
    )


class RayNodes(SpecPart):
    """The private Ray cluster of a driver: a Ray node on each node of the gang, with the devices of the ranks there."""

    object_store_mb: int = Field(
        512, ge=80, le=1_048_576, description="Size of the object store of each Ray node, in MiB. Ray needs 75 or more."
    )


def read_ray(given: Any) -> Any:
    """The object for `true`, and null for `false`; any other value unchanged."""
    return {True: {}, False: None}[given] if isinstance(given, bool) else given
