"""What the code imports is what pyproject.toml declares, for the product and for each of its extras."""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("api", "service", "workers", "strategies")
#: Modules whose users install the extra; all others run without it.
OF_EXTRA = {
    "s3": {"workers/storage/s3_bucket.py"},
    "fp8": {"strategies/fp8.py", "strategies/fp8_halves.py"},
    "pandas": {"service/schemas/dataframes.py"},
    "hub": {"workers/program/files/hub_remote.py"},
    "postgres": set[str](),
    "sweeps": {"service/sweeps/optuna_search.py"},
    "tensorboard": {"workers/program/event_files.py", "workers/program/event_follower.py"},
}
#: Declared and not imported: named elsewhere.
NAMED = {
    "aiosqlite": "SQLAlchemy's driver, by the database's URL",
    "psycopg": "SQLAlchemy's driver, by the database's URL",
    "py-spy": "a command, which profiles ranks",
}
#: Imported and not declared: the code that needs it has it.
THEIRS = {
    "amdsmi": "comes with ROCm; without it GPUs of AMD have no system metrics",
    "IPython": "only a notebook shows a job as HTML",
    "deepspeed": "compared with by hand in benchmarks; an example's environment has it",
    "lightning": "an example's environment has it",
    "google": "protobuf, in which tensorboard has its events; other distributions share the name",
}


@cache
def declared() -> dict[str, set[str]]:
    """Distributions by extra, those that every user has under ``""``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = {"": project["dependencies"], **project["optional-dependencies"]}
    found = {extra: {canonicalize_name(Requirement(line).name) for line in of} for extra, of in lines.items()}
    return {extra: {str(name) for name in names} - {"shardyard"} for extra, names in found.items()}


@cache
def imported(*folders: str) -> dict[str, set[str]]:
    """Distributions by the file that imports them; the standard library's and our own modules aside."""
    found: dict[str, set[str]] = defaultdict(set)
    known = _distributions()
    for path in (path for folder in folders for path in _files(ROOT / folder)):
        file, ours = str(path.relative_to(ROOT)), _ours(path.parent)
        for name in _top_level(ast.parse(path.read_text())) - sys.stdlib_module_names - THEIRS.keys() - ours:
            found[file] |= {str(canonicalize_name(one)) for one in known.get(name, [f"{name}, which nothing provides"])}
    return found


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Distributions by the top-level names that they provide."""
    return packages_distributions()


def _files(folder: Path) -> Iterator[Path]:
    """Without the dashboard's folder, in which thousands of others' files lie."""
    yield from folder.glob("*.py")
    for below in folder.iterdir():
        if below.is_dir() and below.name != "dashboard":
            yield from below.rglob("*.py")


def _top_level(tree: ast.Module) -> set[str]:
    return {name.partition(".")[0] for node in ast.walk(tree) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module


@cache
def _ours(folder: Path) -> set[str]:
    """The package, what lies in tests/ and benchmarks/, and what a script of `folder` imports from beside it."""
    folders = (below.name for name in ("tests", "benchmarks") for below in (ROOT / name).iterdir() if below.is_dir())
    scripts = (script.stem for beside in (folder, ROOT / "benchmarks") for script in beside.glob("*.py"))
    return {"shardyard", *folders, *scripts}


def test_every_import_of_the_product_is_declared() -> None:
    owners = {file: extra for extra, files in OF_EXTRA.items() for file in files}
    undeclared = {
        file: missing
        for file, names in imported(*PRODUCT).items()
        if (missing := names - declared()[""] - declared().get(owners.get(file, ""), set()))
    }
    assert undeclared == {}


@pytest.mark.parametrize("extra", ["", *OF_EXTRA])
def test_every_declared_dependency_is_imported(extra: str) -> None:
    used = {
        name for file, names in imported(*PRODUCT).items() if not extra or file in OF_EXTRA[extra] for name in names
    }
    assert declared()[extra] - used - NAMED.keys() == set()


def test_every_import_of_the_tests_and_tools_is_declared() -> None:
    ours = set().union(*declared().values())
    assert {
        file: missing
        for file, names in imported("tests", "deploy", "docs", "examples").items()
        if (missing := names - ours)
    } == {}


def test_every_extra_is_accounted_for() -> None:
    assert declared().keys() == {"", "dev", "node", *OF_EXTRA}


def test_every_pinned_distribution_installs_on_the_oldest_python_that_we_support() -> None:
    """Some ask for a later patch version: pymdown-extensions 13 for 3.11.5, and Debian 12 has 3.11.2."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    needs = {one.name: one.metadata.get("Requires-Python") or "" for one in distributions()}
    assert not {name: need for name, need in needs.items() if not SpecifierSet(need).contains(f"{oldest}.0")}
