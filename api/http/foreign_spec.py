"""Recognises a spec of another tool, which is refused by that tool's name: SkyPilot's, dstack's, Determined's, or that of a Ray job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...service.schemas.problem import FieldError

#: Keys of our own: a spec with one of them has only forgotten what it runs.
_OWN: Final = frozenset({"train", "command", "ranks", "code", "policy"})


@dataclass(frozen=True)
class Tool:
    """A tool, by what only its specs have: keys by their paths, or `key: value`."""

    name: str
    signs: tuple[str, ...]
    anchor: str  # of its part of the page on how to move
    instead: str


#: In the order in which they are tried: Determined's specs have a Ray job's entrypoint, too.
TOOLS: Final = (
    Tool(
        "dstack",
        ("commands", "type: task", "type: service", "type: dev-environment"),
        "from-dstack",
        "command for commands, ranks for nodes and gpu, code for repos, and env for python",
    ),
    Tool(
        "Determined",
        ("searcher", "resources.slots_per_trial"),
        "from-determined",
        "command for entrypoint, ranks for slots_per_trial, and code for the model directory",
    ),
    Tool(
        "SkyPilot",
        ("run", "setup", "num_nodes", "workdir", "file_mounts", "resources.accelerators"),
        "from-skypilot",
        "command for run, ranks for num_nodes and accelerators, code for workdir, files for file_mounts, and env for setup",
    ),
    Tool(
        "a Ray job",
        ("entrypoint", "kind: RayJob"),
        "from-ray-jobs",
        "command for entrypoint, ranks for its resources, and code and env for runtime_env",
    ),
)


def refusal(document: Any) -> FieldError | None:
    """The one finding about another tool's spec, with what our spec has in the place of its keys; None for any other document."""
    if not isinstance(document, dict) or _OWN & document.keys():
        return None
    for tool in TOOLS:
        signs = [sign for sign in tool.signs if _has(document, sign)]
        if signs:
            message = f"This is a spec of {tool.name}, which has {', '.join(signs)}. A job needs train, or a command."
            remedy = f"Write {tool.instead}: docs/how-to/move.md#{tool.anchor} has both side by side."
            return FieldError(field=signs[0].partition(":")[0], message=message, remedy=remedy)
    return None


def _has(document: Mapping[str, Any], sign: str) -> bool:
    path, _, expected = sign.partition(": ")
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None and expected in ("", value)
