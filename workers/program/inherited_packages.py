"""The packages of this package's own environment, such as torch, in an environment that inherits them.

What an environment lacks is imported from here: a .pth file adds the folders of this interpreter's packages to `sys.path`, after the
environment's own. (`--system-site-packages` would add those of the interpreter that this one's virtual environment was made from.)
"""

import site
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions, entry_points
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from .requirement_files import requirements

_COMMAND: Final = """#!{python}
import sys
from {module} import {name}
sys.exit({function}())
"""


def installed() -> dict[str, str]:
    """Name → version of every package of this interpreter."""
    return {name: one.version for name, one in _by_name(distributions()).items()}


def _by_name(found: Iterable[Distribution]) -> dict[str, Distribution]:
    """What an interrupted removal has left has no name, and is left out."""
    return {str(canonicalize_name(one.name)): one for one in found if "Name" in one.metadata}


def unfit(packages: Path, inherited: Mapping[str, str]) -> set[str]:
    """The inherited packages whose version does not suit what is in the folder `packages`. What is there itself is not inherited."""
    if not inherited:
        return set()
    own = _by_name(distributions(path=[str(packages)]))
    return {
        name
        for need in requirements(text for one in own.values() for text in one.requires or ())
        if (name := str(canonicalize_name(need.name))) in inherited.keys() - own.keys()
        and (need.marker is None or need.marker.evaluate({"extra": ""}))
        and not need.specifier.contains(inherited[name], prereleases=True)
    }


def inherit(environment: Path, packages: Path) -> None:
    """Let the environment import what it lacks from here. The commands of those packages run with its own Python.

    Its Python has this one's version. `packages`: its own folder of packages.
    """
    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = [folder for folder in (*own, *site.getsitepackages()) if Path(folder).is_dir()]
    lines = (f"import site; site.addsitedir({folder!r})\n" for folder in folders)
    (packages / "shardyard_inherited.pth").write_text("".join(lines))
    python = environment / "bin" / "python"
    for command in entry_points(group="console_scripts"):
        path = python.with_name(command.name)
        if path.exists() or command.module.partition(".")[0] == "pip":  # which would install into what other jobs use
            continue
        text = _COMMAND.format(
            python=python, module=command.module, name=command.attr.partition(".")[0], function=command.attr
        )
        path.write_text(text)
        path.chmod(0o755)
