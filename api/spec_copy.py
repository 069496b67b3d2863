"""The spec of a job as that of a new one: its text with the comments, its present layout, another name, and the job as its parent."""

from typing import Any, Final

from pydantic import ValidationError

from ..service.errors import InvalidSpec
from ..service.layout_choice import with_present_layout
from ..service.schemas.job import Job
from ..service.schemas.submitted_spec import SubmittedSpec
from ..service.spec import AnySpec, kind_of
from ..service.spec_text import SpecText
from .spec_document import read_text
from .spec_file import GivenSpec

#: The most characters of a name.
_LONGEST_NAME: Final = 63
#: The end of a clone's name.
_END: Final = "-clone"
#: The label that names the old job, as a fork on the page has it.
_PARENT: Final = "parent"


def cloned(job: Job, submitted: SubmittedSpec, name: str | None = None) -> GivenSpec:
    """The spec of a clone. Without a name it has the old job's, with -clone. Raises InvalidSpec."""
    given = _copied(job, submitted)
    labels = {**(given.document.get("labels") or {}), _PARENT: job.id}
    chosen = name or job.name.removesuffix(_END)[: _LONGEST_NAME - len(_END)] + _END
    return GivenSpec({**given.document, "name": chosen, "labels": labels}, given.text)


def _copied(job: Job, submitted: SubmittedSpec) -> GivenSpec:
    """The text that the job was submitted with, and its present layout. Without a text: its spec with every default."""
    if submitted.text is None or submitted.format is None:
        return GivenSpec({**job.spec, "labels": _of_user(job.spec.get("labels") or {})})
    document = read_text(SpecText(submitted.format, submitted.text))
    if submitted.layout_changed or job.layout_choice is not None:
        document = with_present_layout(document, _read(job))
    return GivenSpec(document, submitted.text if submitted.format == "yaml" else None)


def _read(job: Job) -> AnySpec:
    try:
        return kind_of(job.spec).model_validate(job.spec)
    except ValidationError:
        remedy = "Use a client of the server's version."
        raise InvalidSpec(f"This version cannot read the spec of {job.id}.", remedy=remedy) from None


def _of_user(labels: dict[str, Any]) -> dict[str, Any]:
    """Without those by which a trial's job belongs to its sweep."""
    return {key: value for key, value in labels.items() if not key.startswith("shardyard/")}
