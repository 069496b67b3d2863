"""The commented spec that `shardyard init --command` writes: for a program of the user's own."""

import re
import shlex
from pathlib import Path
from typing import Final

from ....service.jobs import command_warnings
from ....service.schemas.problem import FieldError
from ....service.spec import CommandSpec
from ....service.spec_text import flow
from ... import spec_file
from ...errors import InvalidParameter
from ...http.validation_errors import read_spec
from ...spec_document import parse

#: What needs a shell.
_OF_SHELL: Final = re.compile(r"[|&;<>$`*?~#\n(){}]|^\s*\w+=")
#: Files by which a folder names its packages, the first that is there.
_PACKAGES: Final = ("uv.lock", "requirements.txt", "pyproject.toml")

_TEMPLATE: Final = """\
# Run it with:            shardyard run {path}
# Here first, at once:    shardyard run --local {path}
# Every field:            shardyard schema --kind command
name: {name}
command: {command}
                                    # each rank runs it once, as torchrun would, and without torchrun
ranks: {ranks}                            # one process on one device each; {{min: 1, max: {ranks}}} takes as many as there are devices for
# ranks_per_node: 8                 # consecutive ranks that share a node
code: {{dir: .}}                      # this folder is uploaded, without what git ignores; the command starts in a copy of it
{env}
# files: {{data: "s3://bucket/corpus"}}   # or hf://org/name, or a shared path; each node fetches it once
# secrets: [HF_TOKEN]               # set it with: shardyard secrets --set HF_TOKEN
resources: {{device: auto}}           # cpu, cuda; env: {{LR: "0.1"}} sets variables
policy: {{max_restarts: 3, max_retries: 0}}    # new attempts after faults of machines, and after exceptions of the program
labels: {{}}                          # such as team: search
"""


def written(name: str, command: str, ranks: int, path: Path) -> tuple[str, list[FieldError]]:
    """The text of a spec that passed validation, and warnings about its command. Raises `ShardyardError`."""
    found = next((file for file in _PACKAGES if (path.parent / file).is_file()), None)
    env = "# env: {python: requirements.txt}   # packages of its own, which each node installs once"
    if found is not None:
        env = f"env: {{python: {found}, inherit: true}}    # installed once per node; inherit: beside the nodes' own packages"
    if found == "uv.lock":
        env = "env: {python: uv.lock}              # installed once per node, as it is locked"
    text = _TEMPLATE.format(name=flow(name), command=_as_yaml(command), ranks=ranks, path=path, env=env)
    spec = read_spec(spec_file.absolute(parse(text.encode(), "yaml"), path.parent))
    assert isinstance(spec, CommandSpec)
    return text, command_warnings.warnings(spec)


def _as_yaml(command: str) -> str:
    """A list of arguments, or text where only a shell runs it. Raises InvalidParameter."""
    if _OF_SHELL.search(command):
        return flow(command)
    try:
        words = shlex.split(command)
    except ValueError as error:
        remedy = "Close it, as in --command 'python train.py --name \"a b\"'."
        raise InvalidParameter(f"{command[:80]!r} is no command: {error}.", field="--command", remedy=remedy) from None
    if not words:
        raise InvalidParameter("It is empty.", field="--command", remedy="Such as: --command 'python train.py'")
    return flow(words)
