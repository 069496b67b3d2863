"""A file of conda, usually `environment.yml`: what the environment of a program has.

Jobs share environments, so nothing is installed from the folder of the code: it is one job's. The file's format:
https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from .build_process import EnvironmentNotBuilt
from .requirement_files import content_of, refuse_local

#: Keys that say which packages, and keys without a meaning here: the environment has its own place, and no name.
_KEYS: Final = ("channels", "dependencies")
_UNUSED: Final = ("name", "prefix")
#: Python itself, of any channel, with any version.
_PYTHON: Final = re.compile(r"([^\s:]+::)?python(?![\w.-])")
#: A package by its file on this machine, and not by its name. conda takes what ends like a package for a path, and fills in variables.
_FILE: Final = re.compile(r"\s*[./~$]|.*\bfile:|(?!\s*\w+://).*\.(conda|tar\.bz2)\s*$", re.DOTALL)


def read_conda_file(path: Path) -> str:
    """The file's channels and dependencies, as the text of such a file without comments. Raises EnvironmentNotBuilt."""
    content = content_of(path)
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:300]
        raise EnvironmentNotBuilt(f"{path.name} cannot be read as YAML: {why}") from None
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise EnvironmentNotBuilt(
            f"{path.name} has no list of dependencies, such as dependencies: [python=3.12, numpy]"
        )
    more = [str(key) for key in document if key not in (*_KEYS, *_UNUSED)]
    if more:
        raise EnvironmentNotBuilt(
            f"{path.name} has the key {more[0][:80]!r}, which is not supported: leave it out. Variables are set in resources.env"
        )
    channels = document.get("channels", [])
    if not isinstance(channels, list) or not all(isinstance(one, str) and one[:1] not in "./~" for one in channels):
        raise EnvironmentNotBuilt(
            f"{path.name} has channels that are no list of names and addresses, such as channels: [conda-forge]"
        )
    packages = [_dependency(path, one) for one in document["dependencies"]]
    if not any(isinstance(one, str) and _PYTHON.match(one) for one in packages):
        raise EnvironmentNotBuilt(
            f"{path.name} does not name python: add python=3.12, or another version, to dependencies"
        )
    text: str = yaml.safe_dump({"channels": channels, "dependencies": packages}, sort_keys=False)
    return text


def _dependency(path: Path, found: Any) -> str | dict[str, list[str]]:
    """A package of conda, or those of pip. Raises EnvironmentNotBuilt."""
    if isinstance(found, str) and not _FILE.match(found):
        return found
    if isinstance(found, dict) and found.keys() == {"pip"} and isinstance(found["pip"], list):
        return {"pip": [_requirement(path, one) for one in found["pip"]]}
    raise EnvironmentNotBuilt(
        f"{path.name} has the dependency {str(found)[:200]!r}: write a package such as numpy=2.1, or pip: with a list of requirements"
    )


def _requirement(path: Path, found: Any) -> str:
    lines = found.splitlines() if isinstance(found, str) else []
    if len(lines) != 1 or re.match(r"\s*(-r|--requirement|-c|--constraint)|.*\\$", lines[0]):
        raise EnvironmentNotBuilt(
            f"{path.name} has {str(found)[:200]!r} below pip: write the requirements themselves, one on each line"
        )
    refuse_local(path, lines[0].strip())
    return lines[0]
