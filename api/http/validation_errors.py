"""Converts pydantic's findings about a spec or a parameter into errors with the field and a remedy.

The remedies are derived from the published JSON Schema itself, so that they name the fields and limits that really apply.
"""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from ...service.errors import InvalidLayout
from ...service.jobs.validation import check_layout
from ...service.schemas.problem import FieldError
from ...service.spec import AnySpec, CommandSpec, JobKind, JobSpec, kind_of
from ...strategies.layout import Refusal
from ...workers.spec_part import PLAIN_TEXT
from ..errors import InvalidDocument
from ..spec_document import Path, dotted, walk
from . import foreign_spec

Schema = Mapping[str, Any]

#: What a document without either key needs.
_CHOOSE = "Add train, to train a model with Shardyard's own loop, or command, to run a program of yours on each rank."
#: Maximum number of findings that are made and returned; more would not be read.
MAX_ERRORS = 50
#: How pydantic names the alternatives of a value that may be a list or text.
_ALTERNATIVE: Final = re.compile(r"list\[.+\]|(constrained-)?str")

_KINDS: Final[Mapping[JobKind, type[AnySpec]]] = {"train": JobSpec, "command": CommandSpec}


@cache
def job_schema(kind: JobKind = "train") -> dict[str, Any]:
    """JSON Schema of the spec of this kind of job."""
    schema = _KINDS[kind].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def read_spec(document: Any) -> AnySpec:
    """The job spec that a parsed body contains. Raises `InvalidDocument` with every finding, each with field and remedy.

    Strict: `true` is not a number, and neither is `"5"`, as in the published schema.
    """
    findings = list(islice(_non_finite(document), MAX_ERRORS))
    try:
        spec = kind_of(document).model_validate(document, strict=True)
    except ValidationError as error:
        if (foreign := foreign_spec.refusal(document)) is not None:
            raise InvalidDocument([foreign]) from None
        found = list(_meant(_expand(error.errors(include_url=False, include_input=False), ()), document))
        reported = {finding.field for finding in findings}
        others = (_field_error(path, item, document) for path, item in found if dotted(path) not in reported)
        findings += islice(others, MAX_ERRORS - len(findings))
        if len(findings) < MAX_ERRORS:
            findings += _of_the_layout(document, [path for path, _ in found])
    if findings:
        raise InvalidDocument(findings)
    return spec


def read_training_spec(document: Any) -> JobSpec:
    """`read_spec`, where only a training job will do. Raises `InvalidDocument` for a command, too."""
    spec = read_spec(document)
    if isinstance(spec, CommandSpec):
        message = "This spec runs a command, and only a training job has a layout and a memory plan."
        raise InvalidDocument([FieldError(field="command", message=message, remedy="Give a spec with train.")])
    return spec


#: Fields that the layout's check reads. If one of them has a finding, the check cannot run.
_READ_BY_LAYOUT = tuple(
    ("train", *path)
    for path in (
        ("layout",), ("global_batch",), ("data", "seq_len"), ("precision",), ("recompute",), ("offload",), ("compile",), ("checkpoint",),
    )
)  # fmt: skip


def _of_the_layout(document: Any, wrong: list[Path]) -> list[FieldError]:
    """Findings of the layout's check, if it does not need the `wrong` fields: so that one answer has all findings."""
    if _kind(document) != "train" or any(_touches(path, needed) for path in wrong for needed in _READ_BY_LAYOUT):
        return []
    rest = deepcopy(document)
    for path in wrong:
        _drop(rest, path)
    try:
        train = JobSpec.model_validate({"name": "x", **rest, "train": {"steps": 1, **rest["train"]}}, strict=True).train
        if train.undecided:
            return []
        no_model = any(_touches(path, ("train", "model")) for path in wrong)
        check_layout(train, None, unseen=no_model or train.model.from_ is not None)
    except ValidationError:
        return []
    except InvalidLayout as error:
        return [FieldError(field=error.field, message=error.message, remedy=error.remedy)]
    return []


def _touches(path: Path, field: Path) -> bool:
    """Whether one of the paths contains the other."""
    return all(a == b for a, b in zip(path, field, strict=False))


def _drop(document: Any, path: Path) -> None:
    """Remove a field, if it exists."""
    *above, last = path
    owner = _value(document, tuple(above))
    if isinstance(owner, dict):
        owner.pop(last, None)
    elif isinstance(owner, list) and isinstance(last, int):
        owner.clear()  # the indices of its other items would change


def _non_finite(document: Any) -> Iterator[FieldError]:
    """NaN and infinities anywhere: no field of a spec may hold one."""
    return (
        FieldError(field=dotted(path), message=f"{value} is not a finite number.", remedy=_finite_remedy(path))
        for path, value in walk(document)
        if isinstance(value, float) and not math.isfinite(value)
    )


def parameter_errors(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """FastAPI's findings about query, path and header parameters, and those about a body; the field is the parameter's name.

    Those of one value's alternatives are one finding.
    """
    by_place: dict[Path, list[Mapping[str, Any]]] = {}
    for item in errors:
        by_place.setdefault(tuple(item["loc"]), []).append(item)
    return [_of_alternatives(items) for items in islice(by_place.values(), MAX_ERRORS)]


def as_written(error: ValidationError, document: Any) -> list[dict[str, Any]]:
    """pydantic's findings at their paths in the document, which has no names of a value's alternatives. They never contain the input."""
    found = error.errors(include_url=False, include_input=False)
    return [{**item, "loc": _path_in(document, item["loc"], item["type"])} for item in found]


def _path_in(document: Any, place: Path, kind: str) -> Path:
    path: Path = ()
    for part in place:
        value = _value(document, path)
        is_key = not isinstance(part, str) or part == "[key]" or isinstance(value, dict)
        refused = isinstance(value, dict) and part not in value and part == place[-1] and kind.endswith("_type")
        if is_key and not refused:
            path += (part,)
    return path


def _of_alternatives(items: Sequence[Mapping[str, Any]]) -> FieldError:
    """One finding for a value that no alternative accepts: that of the alternative which has its type, else that of all."""
    of_its_type = [item for item in items if not item["type"].endswith("_type")]
    if len(items) == 1 or of_its_type:
        return _parameter_error((of_its_type or items)[0])
    found = [_parameter_error(item) for item in items]
    kinds = " or ".join(item["msg"].removeprefix("Input should be ") for item in items)
    remedies = ", or ".join((one.remedy or "").removeprefix("Write ").rstrip(".") for one in found)
    return FieldError(field=found[0].field, message=f"Input should be {kinds}.", remedy=f"Write {remedies}.")


def _parameter_error(item: Mapping[str, Any]) -> FieldError:
    field = dotted(tuple(part for part in item["loc"][1:] if part != "[key]")) or str(item["loc"][0])
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, Refusal):
        field = ".".join(filter(None, (field, cause.field)))
        return FieldError(field=field, message=cause.message, remedy=cause.remedy)
    return FieldError(field=field, message=_sentence(item["msg"]), remedy=_by_limits(item))


def _expand(errors: Iterable[Any], prefix: Path) -> list[tuple[Path, Any]]:
    """A validator may raise another model's errors: they are returned at their paths, not as one block of text."""
    found: list[tuple[Path, Any]] = []
    for item in errors:
        path = tuple(part for part in (*prefix, *item["loc"]) if part != "[key]")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            found += _expand(cause.errors(include_url=False, include_input=False), path)
        else:
            found.append((path, item))
    return found


def _meant(found: Iterable[tuple[Path, Any]], document: Any) -> Iterator[tuple[Path, Any]]:
    """A value that may be a list or text has findings for both, at paths of pydantic's own: those for what it is, at its own path.

    A mapping has one finding of the type `mapping`.
    """
    for path, item in found:
        for at, part in enumerate(path):
            value = _value(document, path[:at])
            is_key = isinstance(value, dict) and part in value
            if isinstance(part, str) and _ALTERNATIVE.fullmatch(part) and not is_key:
                is_list = part.startswith("list")
                if isinstance(value, dict) and is_list:
                    yield path[:at], {"type": "mapping"}
                elif not isinstance(value, dict) and is_list == isinstance(value, list):
                    yield (*path[:at], *path[at + 1 :]), item
                break
        else:
            yield path, item


def _field_error(path: Path, item: Mapping[str, Any], document: Any) -> FieldError:
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, Refusal):
        where = (*path, cause.field) if cause.field else path
        return FieldError(field=dotted(where), message=cause.message, remedy=cause.remedy)
    match item["type"]:
        case "extra_forbidden" if path == ("sweep",):
            remedy = "Send a sweep to POST /v1/sweeps; `shardyard submit` does. Leave it out for a single job."
            return _finding(path, "This is the spec of a sweep, and not of a job.", remedy)
        case "extra_forbidden":
            return _unknown(path, document)
        case "missing" if path == ("train",):
            return _finding(path, "A job needs train, or a command.", _CHOOSE)
        case "missing":
            return _finding(path, "This key is missing.", _add(path, _kind(document)))
        case "literal_error" | "enum":
            path = _written(path, document)
            value = _value(document, path)
            choices = [choice.strip(" '") for choice in item["ctx"]["expected"].replace(" or ", ",").split(",")]
            return _finding(path, f"{_short(value)} is not a choice here.", _did_you_mean(value, choices))
        case _:
            return _finding(path, _message(path, item, document), _remedy(path, item, _kind(document)))


def _unknown(path: Path, document: Any) -> FieldError:
    """A key that the schema does not have. Of a document with neither train nor command it may be a key of either kind of job."""
    kind, key = _kind(document), path[-1]
    known = {*_properties(path[:-1], kind)}
    if len(path) == 1 and kind == "train":
        of_command = _properties((), "command")
        if key in of_command:
            remedy = "Add command, to run a program of yours on each rank."
            if "train" in document:
                inside = key in _properties(("train",), kind)
                remedy = (
                    f"Write it as train.{key}." if inside else "Leave it out, or write command in the place of train."
                )
            return _finding(path, f"{key!r} is for a job that runs a command.", remedy)
        if "train" not in document:
            known |= {*of_command}
    return _finding(path, f"Unknown key {key!r}.", _did_you_mean(key, sorted(known)))


def _finding(path: Path, message: str, remedy: str) -> FieldError:
    return FieldError(field=dotted(path) or None, message=message, remedy=remedy)


def _message(path: Path, item: Mapping[str, Any], document: Any) -> str:
    """pydantic's sentence, with the value in place of its subject."""
    if not path and item["type"] == "model_type":
        return "A job spec is a mapping of keys to values."
    given = _value(document, path)
    if item["type"] in ("model_type", "dict_type"):
        return f"{_short(given)} is not a mapping of keys to values."
    if item["type"] == "mapping":
        return f"{_short(given)} is a mapping of keys to values."
    message = item["msg"]
    subject, _, rest = message.partition(" ")
    if subject in {"Input", "String"} and isinstance(given, str | int | float | bool):
        return f"{_short(given)} {rest}."
    return _sentence(message)


def _remedy(path: Path, item: Mapping[str, Any], kind: JobKind) -> str:
    if item["type"] == "finite_number":
        return _finite_remedy(path)
    if item["type"] == "value_error":
        return f"Correct {dotted(path) or 'the spec'}; GET /v1/schema/job describes it."
    hint = _by_limits(item)
    says = _at(path, kind).get("description")
    return f"{hint} {says}" if says and not says.startswith(hint) else hint


_TYPE_REMEDIES = {
    "int": "Write a whole number without quotes.",
    "float": "Write a number.",
    "bool": "Write true or false.",
    "string": "Write text, in quotes if it looks like a number.",
    "list": "Write a list.",
    "mapping": "Write a list, or text.",
    "dict": "Write a mapping of keys to values.",
    "model": "Write a mapping of keys to values.",
    "too": "Write fewer items.",
    "extra": "Remove this key.",
    "finite": "Use a finite number.",
    "missing": "Give it.",
}


def _by_limits(item: Mapping[str, Any]) -> str:
    """The remedy for a kind of finding and its limit."""
    limits = item.get("ctx", {})
    match item["type"]:
        case "greater_than_equal":
            return f"Use {limits['ge']} or more."
        case "greater_than":
            return f"Use more than {limits['gt']}."
        case "less_than_equal":
            return f"Use {limits['le']} or less."
        case "less_than":
            return f"Use less than {limits['lt']}."
        case "string_pattern_mismatch" if limits["pattern"] == PLAIN_TEXT:
            return "Leave out line breaks, control characters, and signs that change the direction of text."
        case "string_pattern_mismatch":
            return f"Use text that matches {limits['pattern']}."
        case "string_too_long":
            return f"Use at most {limits['max_length']} characters."
        case "string_too_short":
            return f"Use at least {limits['min_length']} characters."
        case "too_short":
            return f"Write at least {limits['min_length']} item{'s' if limits['min_length'] > 1 else ''}."
        case "too_long":
            return f"Use at most {limits['max_length']} items."
        case kind:
            return _TYPE_REMEDIES.get(kind.split("_")[0], "See GET /v1/schema/job.")


def _finite_remedy(path: Path) -> str:
    return f"Set {dotted(path)} to a finite number." if path else "Use a finite number."


def _add(path: Path, kind: JobKind) -> str:
    says = _at(path, kind).get("description")
    return f"Add {dotted(path)}" + (f": {says[0].lower()}{says[1:]}" if says else ".")


def _did_you_mean(word: object, known: list[str]) -> str:
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), folded, n=1, cutoff=0.6)
    listed = ", ".join(known)
    if not known:
        return "Remove it."
    return f"Did you mean {folded[close[0]]!r}? Known here: {listed}." if close else f"Known here: {listed}."


def _sentence(text: str) -> str:
    text = text.removeprefix("Value error, ").strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _written(path: Path, document: Any) -> Path:
    """The part of `path` that the document contains: a plain word may stand for an object, whose field the document does not name."""
    for length in range(len(path)):
        if isinstance(_value(document, path[:length]), str):
            return path[:length]
    return path


def _value(data: Any, path: Path) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _kind(document: Any) -> JobKind:
    return "command" if kind_of(document) is CommandSpec else "train"


def _at(path: Path, kind: JobKind) -> Schema:
    """The schema of the field at `path`, with its own description. Empty if the schema does not define it."""
    node: Schema = job_schema(kind)
    for part in path:
        body = _body(node, kind)
        node = body.get("items", {}) if isinstance(part, int) else body.get("properties", {}).get(part, {})
    return node


def _properties(path: Path, kind: JobKind) -> Mapping[str, Any]:
    """The keys of the mapping at `path`."""
    found: Mapping[str, Any] = _body(_at(path, kind), kind).get("properties", {})
    return found


def _body(node: Schema, kind: JobKind) -> Schema:
    """Follow `$ref` and the non-null branch of `anyOf`."""
    for branch in node.get("anyOf", []):
        if branch.get("type") != "null":
            return _body(branch, kind)
    if "$ref" in node:
        found: Schema = job_schema(kind)["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return found
    return node
