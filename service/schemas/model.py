"""The model registry: names, numbered versions, aliases, and what others change of them; and how a spec refers to a version."""

import re
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ...strategies.layout import Refusal
from .base import Timestamp, Value

#: What a reference to a version begins with.
PREFIX: Final = "models/"
#: The alias that every model has: its newest version. It cannot be set.
LATEST: Final = "latest"
#: Names of models and aliases: lower-case letters, digits and dashes.
PATTERN: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
LONGEST: Final = 63
MOST_NOTES: Final = 16_384
#: Numbers of versions have at most nine digits.
MOST_NUMBER: Final = 999_999_999

_REFERENCE: Final = re.compile(r"models/([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?:@([a-z0-9](?:[a-z0-9-]*[a-z0-9])?))?")
_TEXT: Final = r"^[^\x00]*$"

Number = Annotated[int, Field(ge=1, le=MOST_NUMBER)]


class Reference(NamedTuple):
    """A version by its model and its number or an alias. Text: `models/NAME@3`, `models/NAME@ALIAS`; `models/NAME` is the newest."""

    model: str
    which: str = LATEST

    def __str__(self) -> str:
        return f"{PREFIX}{self.model}@{self.which}"

    @property
    def number(self) -> int | None:
        """The version's number; None: `which` is an alias."""
        return int(self.which) if self.which.isdecimal() and len(self.which) < 10 else None

    @classmethod
    def parse(cls, text: str) -> "Reference | None":
        """None if the text is no reference to a version, but a job or a path."""
        found = _REFERENCE.fullmatch(text)
        if found is None or max(len(part or "") for part in found.groups()) > LONGEST:
            return None
        return cls(found[1], found[2] or LATEST)


class VersionRequest(BaseModel):
    """What a new version is made of: a job's checkpoint, or a file that its program logged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_TEXT)] = Field(
        description="Id or name of the job."
    )
    step: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(
        None, description="Step of the checkpoint or of the file; by default the newest."
    )
    artifact: Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=_TEXT)] | None = Field(
        None, description="Name of a file that the job's program logged; by default a checkpoint is named."
    )
    notes: Annotated[str, StringConstraints(max_length=MOST_NOTES, pattern=_TEXT)] = Field(
        "", description="Plain text of several lines."
    )


class AliasRequest(BaseModel):
    """The version that an alias is to name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Number = Field(description="Number of the version.")
    expected: Annotated[int, Field(ge=0, le=MOST_NUMBER)] | None = Field(
        None,
        description="The version that the alias names now, 0 if there is no such alias; another one refuses the change. By default any.",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_no_alias(cls, given: object) -> object:
        if isinstance(given, dict) and isinstance(given.get("version"), str):
            raise Refusal("version", "It must be a number.", "Name a version by its number, such as 3.")
        return given


class ModelVersion(Value):
    """A numbered version of a model. It is never changed; only its aliases and the state of its files may be."""

    model: str
    number: int
    job: str = Field(description="Id of the job that it comes from.")
    step: int | None = Field(None, description="Step of the checkpoint, or of the logged file.")
    artifact: str | None = Field(None, description="Name of the logged file; null for a checkpoint.")
    path: str | None = Field(None, description="Address of the checkpoint's folder; null for a logged file.")
    digest: str | None = Field(
        None,
        description="Checksum of the checkpoint's manifest, or of the file. If the save did not report it, null until the cluster has "
        "pinned the checkpoint.",
    )
    state: Literal["present", "corrupt", "deleted"] = Field(
        description="State of the checkpoint or the file. `deleted`: also if another save of the step, or another file of the name, has "
        "replaced it."
    )
    pinned: bool = Field(
        description="Whether it is kept in any case. False until the cluster has pinned the checkpoint."
    )
    trained: bool = Field(description="Whether Shardyard's own loop trained it: then it can be exported.")
    metrics: dict[str, float | None] = Field(description="The job's newest metrics when the version was created.")
    notes: str
    aliases: list[str] = Field(description="Aliases that name it now, without `latest`.")
    actor: str = Field(description="Name of the user who created it.")
    created_at: Timestamp


class ModelVersions(Value):
    """One page of versions, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[ModelVersion]
    next: int | None = None


class ModelAlias(Value):
    """An alias of a version."""

    model: str
    alias: str
    version: int = Field(description="Number of the version.")
    actor: str = Field(description="Name of the user who set it last.")
    set_at: Timestamp


class Model(Value):
    """A model: a name with versions."""

    name: str
    latest: int | None = Field(None, description="Number of the newest version; null if all were deleted.")
    aliases: list[ModelAlias] = Field(description="In order of their names.")
    actor: str = Field(description="Name of the user who created its first version.")
    created_at: Timestamp


class Models(Value):
    """One page of models that have versions, by name. `next` is the `after` of the next request, null on the last page."""

    items: list[Model]
    next: str | None = None


class ModelChange(Value):
    """An entry of a model's history."""

    position: int
    kind: str = Field(description="`version_created`, `version_deleted`, `alias_set` or `alias_removed`.")
    version: int = Field(description="Number of the version.")
    alias: str | None = None
    before: int | None = Field(None, description="The version that the alias named before.")
    actor: str
    at: Timestamp


class ModelHistory(Value):
    """One page of a model's history, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[ModelChange]
    next: int | None = None
