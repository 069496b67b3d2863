"""The spec of a job as that of a new one: its text with the comments, its present layout, another name, and the job as its parent."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from ..service.errors import InvalidSpec
from ..service.layout_choice import with_present_layout
from ..service.schemas.job import Job
from ..service.schemas.model import Reference
from ..service.schemas.submitted_spec import SubmittedSpec
from ..service.spec import MOST_LABELS, AnySpec, kind_of
from ..service.spec_text import SpecText
from .spec_document import read_text
from .spec_file import GivenSpec

#: The most characters of a name.
_LONGEST_NAME: Final = 63
#: The end of a clone's name.
_END: Final = "-clone"
#: The label that names the old job, as a fork on the page has it.
_PARENT: Final = "parent"


def cloned(
    job: Job, submitted: SubmittedSpec, name: str | None = None, values: Mapping[str, Any] | None = None
) -> GivenSpec:
    """The spec of a clone, in which these values are to be set. Without a name it has the old job's, with -clone. Raises InvalidSpec."""
    given = _copied(job, submitted, asks=_asks_advisor(values or {}))
    labels = given.document.get("labels") or {}
    if len({*labels, _PARENT}) <= MOST_LABELS:
        labels = {**labels, _PARENT: job.id}
    chosen = name or job.name.removesuffix(_END)[: _LONGEST_NAME - len(_END)] + _END
    return GivenSpec({**given.document, "name": chosen, "labels": labels}, given.text)


def _asks_advisor(values: Mapping[str, Any]) -> bool:
    """Whether values of a spec ask the layout advisor for a layout."""
    layout = values.get("train.layout")
    whole = layout == "auto" or (isinstance(layout, dict) and layout.get("auto") is not None)
    part = values.get("train.layout.auto") is not None  # null keeps the present layout
    return whole or part or any(path.startswith("train.layout.auto.") for path in values)


def _copied(job: Job, submitted: SubmittedSpec, *, asks: bool) -> GivenSpec:
    """The text that the job was submitted with, its present layout, and the checkpoint with which it began.

    Without a text: its spec with every default. `asks`: the layout advisor is to choose a layout in place of the one that it chose.
    """
    if submitted.text is None or submitted.format is None:
        document, text = {**job.spec, "labels": _of_user(job.spec.get("labels") or {})}, None
    else:
        document = read_text(SpecText(submitted.format, submitted.text))
        text = submitted.text if submitted.format == "yaml" else None
    if asks and job.layout_choice is not None:
        document = _as_asked(document, job)
    elif submitted.layout_changed or job.layout_choice is not None:
        document = with_present_layout(document, _read(job))
    return GivenSpec(_beginning(_as_ranges(document), job, submitted.resume), text)


def _as_asked(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """The document with the layout that asked the layout advisor, and without what it chose for the job."""
    train = document["train"]
    layout = train.get("layout")
    if layout == "auto":
        return {**document, "train": {**train, "layout": {"auto": {}}}}
    auto = layout.get("auto") if isinstance(layout, dict) else None
    if auto is not None and auto.get("step_s") is None:
        return document
    # The document has what was chosen: it is the job's spec, or the text of a retry.
    left = {key: value for key, value in train.items() if key not in ("recompute", "offload")}
    world = job.spec["train"]["layout"]["auto"].get("world")
    return {**document, "train": {**left, "layout": {"auto": {"world": world}}}}


def _as_ranges(document: dict[str, Any]) -> dict[str, Any]:
    """The document with an elastic number as its range, in whose place a number can be set."""
    train = document.get("train")
    if isinstance(train, dict) and isinstance(train.get("layout"), dict):
        document = {**document, "train": {**train, "layout": _as_range(train["layout"], "data")}}
    return _as_range(document, "ranks")


def _as_range(part: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(part.get("elastic"), dict):
        return part
    return {**{key: value for key, value in part.items() if key != "elastic"}, name: part["elastic"]}


def _beginning(document: dict[str, Any], job: Job, resume: str | None) -> dict[str, Any]:
    """The document with the checkpoint itself: the name of a job may be that of a newer one by now, and an alias of another version."""
    part = document.get("train", document)
    if resume is None or not isinstance(part, dict) or not part.get("resume_from"):
        return document
    stored = job.spec.get("train", job.spec).get("resume_from")
    pinned = isinstance(stored, str) and Reference.parse(stored) is not None
    began = {**part, "resume_from": stored if pinned else resume}
    return {**document, "train": began} if "train" in document else began


def _read(job: Job) -> AnySpec:
    try:
        return kind_of(job.spec).model_validate(job.spec)
    except ValidationError:
        remedy = "Use a client of the server's version."
        raise InvalidSpec(f"This version cannot read the spec of {job.id}.", remedy=remedy) from None


def _of_user(labels: dict[str, Any]) -> dict[str, Any]:
    """Without those by which a trial's job belongs to its sweep."""
    return {key: value for key, value in labels.items() if not key.startswith("shardyard/")}
