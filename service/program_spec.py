"""Parts of the spec of a job that runs a program: its arguments, its code, and its Python environment. Imports no torch and no Ray."""

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from ..strategies.elastic import Range, number_or_range
from ..strategies.layout import Refusal
from ..strategies.number_object import beside_the_number
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
    if scheme.lower().removeprefix("git+") in ("http", "https"):
        return "@" in rest.partition("?")[0].partition("/")[0] or "?" in rest
    return urlsplit(url).password is not None


class Code(SpecPart):
    """A folder, or a repository, whose files are uploaded with the job. Every node gets a copy, in which the program starts."""

    dir: PathText | None = Field(
        None,
        description="Folder on the machine that submits the job. The command line and the Python client upload its files: those that git "
        "knows or does not ignore, or outside a repository all that no .gitignore file excludes, without virtual environments and caches.",
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


#: Name of an image: a value of the Ray label by which nodes say what they run.
ImageName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]


class Environment(SpecPart):
    """In what a job's program runs: the image of its nodes, and its Python environment. Each node builds an environment once with uv or
    conda, and keeps it for other jobs.
    """

    python: Annotated[list[RequirementText], Field(min_length=1, max_length=1024)] | PathText | None = Field(
        None,
        description="A file of requirements in the folder of `code`, or as every node sees it: a .txt file, pyproject.toml, or uv.lock "
        "with the pyproject.toml beside it. Or a list of requirements, such as [einops==0.8, timm].",
    )
    conda: PathText | None = Field(
        None,
        description="A file of conda in the folder of `code`, or as every node sees it, such as environment.yml, in the place of `python`. "
        "The nodes need micromamba or conda.",
    )
    image: ImageName | None = Field(
        None,
        description="Name of the image that the job's nodes run, as `shardyard nodes` lists it: their label `shardyard.io/image`. With "
        "`python` or `conda`, the environment is built there. null: the cluster's own image.",
    )
    version: str | None = Field(
        None,
        pattern=r"^3\.\d{1,2}(\.\d{1,3})?$",
        description="Version of Python, such as 3.12, for `python`. uv downloads it where a node lacks it. null: that of the nodes' Ray "
        "workers.",
    )
    inherit: bool = Field(
        False,
        description="Whether the program can import what the nodes' Ray workers have, such as torch, where the environment lacks it. Such "
        "packages are not installed again. Only with `python`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _asks_for_packages(cls, data: Any) -> Any:
        """Not for variables, nor for an image that a registry has."""
        image = data.get("image") if isinstance(data, dict) else None
        if isinstance(image, str) and {"/", ":", "@"} & {*image}:
            raise Refusal(
                "image",
                f"{image!r:.100} is an address, and a job does not start containers: its nodes run their images before it comes.",
                "Name an image as `shardyard nodes` lists it. Operators add nodes with an image by the Helm chart's ray.workerGroups, or "
                "by Ray's label shardyard.io/image.",
            )
        if isinstance(data, dict) and data and not cls.model_fields.keys() & data.keys():
            raise Refusal(
                "",
                f"{next(iter(data))!r:.60} is no key of env, which asks for Python packages.",
                "Write packages as env: {python: [einops]}, and variables as resources: {env: {NAME: value}}.",
            )
        return data

    @model_validator(mode="after")
    def _is_of_one_tool(self) -> "Environment":
        if self.python is not None and self.conda is not None:
            raise Refusal("python", "env has both python and conda.", "Leave one of them out.")
        if self.python is None and self.conda is None and self.image is None:
            raise Refusal(
                "python",
                "env has none of python, conda and image.",
                "Write env: {python: requirements.txt}, a list of requirements, env: {conda: environment.yml}, or env: {image: NAME}.",
            )
        if self.python is None and (self.version is not None or self.inherit):
            by_conda = self.conda is not None
            raise Refusal(
                "inherit" if self.inherit else "version",
                f"It goes with python, and {'conda builds the environment' if by_conda else 'no environment is built'}.",
                "Leave it out, and name python=3.12 and torch under dependencies in the file."
                if by_conda
                else "Leave it out: the program runs with the image's own Python. Or name packages under python.",
            )
        return self


#: A path at which the program finds files, relative to its code.
FileTarget = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=PLAIN_TEXT)]


class ProgramCheckpoints(SpecPart):
    """Where the program's checkpoints are, and how many stay. It saves them with `shardyard.checkpoint`."""

    keep: int = Field(2, ge=1, le=1000, description="Number of newest checkpoints to keep.")
    uri: Storage | None = Field(
        None,
        description="Folder of the checkpoints, `s3://bucket/prefix` or a path; the job's own folder is made in it. null: the server's.",
    )


#: More ranks than that are taken for a typing error.
MOST_RANKS: Final = 100_000


class RankRange(Range):
    """The smallest and the largest number of ranks with which a command may run."""

    min: int = Field(ge=1, le=MOST_RANKS, description="The smallest number of ranks with which the job continues.")
    max: int = Field(
        ge=1, le=MOST_RANKS, description="The number of ranks that the job uses if there are enough devices."
    )


#: Of an elastic command; all of them are in the job's row, which each pass of the queue reads.
MOST_SIZES: Final = 256


class CommandLayout(SpecPart):
    """The number of ranks of a command, and how they share nodes."""

    ranks: int = Field(
        1,
        ge=1,
        le=MOST_RANKS,
        description="Number of ranks, each on a device of its own. `{min: 2, max: 8}`: as many of them as there are devices for; the "
        "command starts again when their number changes.",
        json_schema_extra=number_or_range,
    )
    elastic: RankRange | None = Field(
        None, description="The numbers between which the service may change `ranks`; what `ranks: {min, max}` becomes."
    )
    ranks_per_node: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Number of consecutive ranks that share a node; it divides `ranks`. null: as the nodes have room.",
    )

    @model_validator(mode="before")
    @classmethod
    def _range_beside_the_number(cls, given: Any) -> Any:
        return beside_the_number(given, "ranks", RankRange)

    @field_validator("elastic")
    @classmethod
    def _ranks_within(cls, given: RankRange | None, info: ValidationInfo) -> RankRange | None:
        if given is not None and info.data.get("ranks", given.max) not in given:
            raise ValueError(f"ranks {info.data['ranks']} is not within {given}")
        return given

    @model_validator(mode="after")
    def _nodes_are_full(self) -> "CommandLayout":
        least = self.ranks if self.elastic is None else self.elastic.min
        for ranks in (self.ranks, least):
            if ranks % self.together:
                raise ValueError(f"ranks_per_node {self.together} does not divide ranks {ranks}: choose a divisor")
        if len(self.sizes) > MOST_SIZES:
            raise Refusal(
                "ranks",
                f"{self.elastic} are {len(self.sizes):,} numbers of ranks; a job may choose from {MOST_SIZES}.",
                "Set a smaller range, or ranks_per_node, of which the numbers are multiples.",
            )
        return self

    @property
    def sizes(self) -> range:
        """The numbers of ranks with which the command may run, largest first."""
        within = self.elastic or RankRange(min=self.ranks, max=self.ranks)
        return range(within.max, within.min - 1, -self.together)

    @property
    def together(self) -> int:
        """The number of consecutive ranks that share a node."""
        return self.ranks_per_node or 1


class RayNodes(SpecPart):
    """The private Ray cluster of a driver: a Ray node on each node of the gang, with the devices of the ranks there."""

    object_store_mb: int = Field(
        512, ge=80, le=1_048_576, description="Size of the object store of each Ray node, in MiB. Ray needs 75 or more."
    )


def read_ray(given: Any) -> Any:
    """The object for `true`, and null for `false`; any other value unchanged."""
    return {True: {}, False: None}[given] if isinstance(given, bool) else given
