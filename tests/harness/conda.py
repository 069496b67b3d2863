"""A stand-in for micromamba and conda, for what is around them: it makes an environment that has no packages.

No real one runs in the tests: none can be installed with pip. Its command lines are those of their documentation, its errors those of
their issue trackers.
"""

import sys
from pathlib import Path

#: It fails for the packages `none-such`, `far-away` and `large`, is killed with `killed`, waits with `slow` for a file, and leaves out
#: Python with `pythonless`.
_SCRIPT = """#!{python}
import json, os, pathlib, sys, time, venv
import yaml

arguments = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps({{"name": {name!r}, "arguments": arguments, "env": dict(os.environ)}}) + "\\n")
if arguments[0] == "clean":
    sys.exit(0)
create = {create!r}
if arguments[: len(create)] != create or arguments[len(create)] != "--prefix" or arguments[len(create) + 2] != "--file":
    sys.exit("error    unknown arguments")
prefix, file = pathlib.Path(arguments[len(create) + 1]), pathlib.Path(arguments[len(create) + 3])
wanted = yaml.safe_load(file.read_text())
print("Collecting package metadata (repodata.json): done", flush=True)
prefix.mkdir(parents=True)
if "none-such" in wanted["dependencies"]:
    print({missing!r}, flush=True)
    sys.exit(1)
if "far-away" in wanted["dependencies"]:
    print({unreachable!r}, flush=True)
    sys.exit(1)
if "large" in wanted["dependencies"]:
    print({full!r}, flush=True)
    sys.exit(1)
if "killed" in wanted["dependencies"]:
    os.kill(os.getpid(), 9)
while "slow" in wanted["dependencies"] and not pathlib.Path({calls!r}).with_name("go").exists():
    time.sleep(0.02)
if "pythonless" not in wanted["dependencies"]:
    venv.create(prefix, symlinks=True)
print("Executing transaction: done", flush=True)
"""
_CREATE = {"micromamba": ["create", "--yes"], "conda": ["env", "create"]}
MISSING = {
    "micromamba": "error    libmamba Could not solve for environment specs\n    The following package could not be installed\n"
    "    └─ none-such does not exist (perhaps a typo or a missing channel).\n"
    "critical libmamba Could not solve for environment specs",
    "conda": "Solving environment: failed\n\nLibMambaUnsatisfiableError: Encountered problems while solving:\n"
    "  - nothing provides requested none-such",
}
UNREACHABLE = {
    "micromamba": "critical libmamba Multiple errors occurred:\n"
    "    Download error (6) Could not resolve hostname [https://conda.anaconda.org/conda-forge/noarch/repodata.json.zst]",
    "conda": "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.anaconda.org/conda-forge/noarch/repodata.json>",
}
FULL = {
    "micromamba": "error    libmamba Error when extracting package: Could not write: No space left on device",
    "conda": "NoSpaceLeftError: No space left on devices.",
}


def stand_in(folder: Path, name: str) -> Path:
    """Put the tool `name` into a folder for PATH. Returns the file that gets a line of JSON for each call."""
    folder.mkdir(parents=True, exist_ok=True)
    calls = folder / "calls"
    script = folder / name
    script.write_text(
        _SCRIPT.format(
            python=sys.executable,
            name=name,
            create=_CREATE[name],
            calls=str(calls),
            missing=MISSING[name],
            unreachable=UNREACHABLE[name],
            full=FULL[name],
        )
    )
    script.chmod(0o755)
    return calls
