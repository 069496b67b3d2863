"""Pages that are generated from the product when the site is built, so that they always agree with it.

A hook of MkDocs (`hooks:` in mkdocs.yml). The reference of the spec comes from the published JSON Schema, that of the settings from
their class, and that of the command line from its own help.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardyard.api.cli.exit_codes import format_exit_codes
from shardyard.api.cli.main import app
from shardyard.api.http.validation_errors import job_schema
from shardyard.service.settings import Settings
from shardyard.workers.messages.event import KINDS, VERSION, json_schema

ROOT = Path(__file__).parents[1]

Schema = dict[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the folder."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def changelog() -> str:
    """Return the changelog with its links relative to this folder."""
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")


def spec() -> str:
    """Return the reference of the job spec: one table for each object, in the order of the schema."""
    train, command = job_schema("train"), job_schema("command")
    lines = [
        "# The spec",
        "",
        "Generated from the JSON Schemas that `shardyard schema` prints. A field without a default is required.",
        "",
        "A spec with `train` is a training job; one with `command` runs a program of your own (at the end of this page).",
        "",
        *_tables(train, "## `{}`"),
        "## A job that runs a command",
        "",
        *_described(command),
        *_tables(command, "### `{}` of a command"),
    ]
    return "\n".join(lines) + "\n"


def _tables(schema: Schema, heading: str) -> list[str]:
    """Return the table of a spec and those of all objects in it. `heading`: that of an object, with a place for its path."""
    lines = _table(schema, schema, heading)
    for path, body in _objects(schema):
        lines += [heading.format(path), "", *_described(body), *_table(schema, body, heading, f"{path}.")]
    return lines


def _objects(schema: Schema, body: Schema | None = None, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the path and the schema of every object in a spec, each before the objects inside it."""
    for name, field in (body or schema).get("properties", {}).items():
        for _, found in _referred(schema, field):
            yield f"{prefix}{name}", found
            yield from _objects(schema, found, f"{prefix}{name}.")


def _referred(schema: Schema, field: Schema) -> list[tuple[str, Schema]]:
    names = [branch["$ref"].rpartition("/")[2] for branch in _branches(field) if "$ref" in branch]
    return [(name, schema["$defs"][name]) for name in names if "properties" in schema["$defs"][name]]


def _branches(field: Schema) -> list[Schema]:
    return list(field.get("anyOf") or field.get("oneOf") or [field])


def _described(body: Schema) -> list[str]:
    return [body["description"].partition("\n\n")[0].replace("\n", " "), ""] if "description" in body else []


def _table(schema: Schema, body: Schema, heading: str, prefix: str = "") -> list[str]:
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for name, field in body.get("properties", {}).items():
        default = "" if name in body.get("required", []) else _default(schema, field)
        about = _prose(field.get("description", ""))
        anchor = _anchor(heading.format(f"{prefix}{name}"))
        lines.append(f"| `{name}` | {_type(schema, field, anchor)} | {default} | {about} |")
    return [*lines, ""]


def _anchor(heading: str) -> str:
    """Return the anchor that MkDocs gives a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def _default(schema: Schema, field: Schema) -> str:
    if _referred(schema, field) and isinstance(field.get("default", {}), dict):
        return "its own defaults"
    return "" if "default" not in field else f"`{_yaml(field['default'])}`"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _type(schema: Schema, field: Schema, anchor: str) -> str:
    return " or ".join(dict.fromkeys(_one(schema, branch, anchor) for branch in _branches(field)))


def _one(schema: Schema, branch: Schema, anchor: str) -> str:
    if "$ref" in branch:
        name = branch["$ref"].rpartition("/")[2]
        found = schema["$defs"][name]
        return f"[object](#{anchor})" if "properties" in found else _one(schema, found, anchor)
    if "enum" in branch:
        return _cell(", ".join(f"`{value}`" for value in branch["enum"]))
    if "const" in branch:
        return f"`{branch['const']}`"
    return _cell(branch.get("type", "any") + _limits(branch))


def _limits(branch: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {branch[key]}" for key, sign in signs.items() if key in branch]
    return f" {', '.join(limits)}" if limits else ""


def _cell(text: str) -> str:
    """Return the text escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    return _cell(text).replace("<", "&lt;")


def settings() -> str:
    """Return the reference of the control plane's environment variables."""
    lines = [
        "# Settings",
        "",
        "The control plane reads them from its environment.",
        "",
        "| variable | default | |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = "" if field.default_factory or field.is_required() else f"`{_yaml(field.default)}`"
        lines.append(f"| `SHARDYARD_{name.upper()}` | {default} | {_prose(field.description or '')} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the reference of every command with its arguments and options."""
    group = typer.main.get_command(app)
    lines = [
        "# The command line",
        "",
        "Every command that reads takes `--json`; pipes get plain lines, and `NO_COLOR` is respected.",
        "",
        format_exit_codes(),
        "",
    ]
    for name in sorted(group.commands):  # type: ignore[attr-defined]
        lines += _command(name, group.commands[name])  # type: ignore[attr-defined]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> list[str]:
    """Return the lines of one command, followed by those of its subcommands."""
    context = typer.Context(command, info_name=f"shardyard {name}")
    usage = " ".join([f"shardyard {name}", *command.collect_usage_pieces(context)])
    lines = [f"## `shardyard {name}`", "", (command.help or "").strip(), "", f"    {usage}", ""]
    records = [record for option in command.params if (record := option.get_help_record(context))]
    lines += [f"- `{_cell(spelled)}`: {_prose(' '.join(about.split()))}" for spelled, about in records]
    for below, nested in sorted(getattr(command, "commands", {}).items()):
        lines += ["", *_command(f"{name} {below}", nested)]
    return [*lines, ""]


def events() -> str:
    """Every kind of event with its fields."""
    about = "A field that equals its default is left out."
    lines = ["# Events", "", f"The data of each kind of event, in version {VERSION}. {about}", ""]
    lines += ["[How events are numbered and delivered](../design/events.md).", ""]
    parts: dict[str, Schema] = {}
    for kind, event_type in KINDS.items():
        schema = json_schema(event_type)
        parts |= schema.get("$defs", {})
        lines += [f"## `{kind}`", "", *_described(schema), f"Stored in {STORED.get(kind, '`events`')}.", ""]
        lines += _fields(schema["properties"], schema.get("required", []))
    for name, part in sorted(parts.items()):
        lines += [f"## {name}", "", *_described(part), *_fields(part["properties"], part.get("required", []))]
    return "\n".join(lines) + "\n"


def _fields(properties: Schema, required: list[str]) -> list[str]:
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for name, field in properties.items():
        default = "" if name in required else f"`{_yaml(field.get('default'))}`"
        lines.append(f"| `{name}` | {_event_type(field)} | {default} | {_prose(field.get('description', ''))} |")
    return [*lines, ""]


def _event_type(field: Schema) -> str:
    """A field's type in words, with links to the objects below."""
    branches = _branches(field)
    if len(branches) > 1:
        return " or ".join(_event_type(branch) for branch in branches)
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "prefixItems" in field:
        return f"list of {len(field['prefixItems'])} values"
    if field.get("type") == "array":
        return f"list of {_event_type(field['items'])}"
    if "additionalProperties" in field:
        return f"object of {_event_type(field['additionalProperties'])}"
    return str(field.get("type", "any"))


#: Where the service stores a kind, if not in the table `events`.
STORED = {
    "state": "`events`, as a move of the job",
    "step": "`steps`",
    "rank_metrics": "`rank_samples`, at most 2,000 of a job",
    "log": "`logs`",
    "trace": "`trace_parts`, never streamed",
    "fault": "`events`; settles its row of `faults`",
    "exec": "`events`; settles its row of `execs`",
    "profile": "`events`; settles its row of `profiles`, and its file is one of the job",
    "trace_finished": "`events`; settles its row of `traces`",
    "summary": "`events`, and with the job",
}

PAGES: dict[str, Callable[[], str]] = {
    "changelog.md": changelog,
    "reference/spec.md": spec,
    "reference/cli.md": commands,
    "reference/settings.md": settings,
    "reference/events.md": events,
}
