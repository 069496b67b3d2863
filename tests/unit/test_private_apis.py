"""The page on private functions of torch and Ray names the files that use one, and only those."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "private-apis.md"
FLOORS = ("api", "service", "workers", "strategies", "deploy")
#: Private, though they are not named so.
UNNAMED = {"internal_kv", "generated"}
#: Private modules with functions for several files.
MODULES = {"_C", "_private", "_internal", "_distributed_c10d", "_fully_shard", "_fsdp_param", "generated"}
#: Private attributes of values that torch returns.
OF_VALUES = {"_version", "_modules", "_parameters", "_buffers", "_opname", "_schema", "_local_tensor", "_spec"}


def uses(code: str) -> list[str]:
    """The private names of torch and Ray in a module's code."""
    tree = ast.parse(code)
    imported = _imported(tree)
    return [name for node in ast.walk(tree) for name in _uses(node, imported)]


def _uses(node: ast.AST, imported: set[str]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.level == 0 and _theirs(node.module or ""):
        yield from filter(_private, [*(node.module or "").split("."), *(alias.name for alias in node.names)])
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names if _theirs(alias.name)]
        yield from (part for name in names for part in name.split(".") if _private(part))
    if (
        isinstance(node, ast.Attribute)
        and (_root(node) in imported or (node.attr in OF_VALUES and _root(node) != "self"))
        and _private(node.attr)
    ):
        yield node.attr
    if isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "ParallelStyle" for base in node.bases
    ):
        yield from (f.name for f in node.body if isinstance(f, ast.FunctionDef) and _private(f.name))
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"(torch|ray)\._[\w.]+", node.value)
    ):
        yield node.value


def _imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names if _theirs(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and _theirs(node.module or ""):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _theirs(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in ("torch", "ray")


def _private(name: str) -> bool:
    return name in UNNAMED or (name.startswith("_") and not name.startswith("__"))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@cache
def used() -> dict[str, set[str]]:
    """File → its private names."""
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py") if "node_modules" not in file.parts]
    found = {str(file.relative_to(ROOT)): set(uses(file.read_text())) for file in files}
    return {file: names for file, names in found.items() if names}


def test_the_tables_name_the_files_that_use_one() -> None:
    assert set(re.findall(r"^\| `([\w/]+\.py)` \|", PAGE.read_text(), re.MULTILINE)) == set(used())


def test_each_is_used_in_one_file() -> None:
    files: dict[str, list[str]] = {}
    for file, names in used().items():
        for name in names - MODULES:
            files.setdefault(name, []).append(file)
    assert {name: places for name, places in files.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import torch\ntorch._foreach_norm([])", ["_foreach_norm"]),
        ("from torch.distributed import distributed_c10d as c\nc._world.x", ["_world"]),
        ("import torch.distributed as dist\ndist._dump()", ["_dump"]),
        ("from torch._inductor import config", ["_inductor"]),
        ("def f(t):\n    return t._version", ["_version"]),
        ("import ray\nray._private.x()", ["_private"]),
        ("from ray.experimental import internal_kv", ["internal_kv"]),
        ("NAMES = ('ray._private.arrow_serialization',)", ["ray._private.arrow_serialization"]),
        ("class A(ParallelStyle):\n    def _apply(self): ...", ["_apply"]),
        ("import torch\nself._x = torch.ones(1).__class__", []),
    ],
)
def test_a_use_is_found(code: str, names: list[str]) -> None:
    assert uses(code) == names
