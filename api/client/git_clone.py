"""Clones the repository that a spec's `code.git` names, with the git and the credentials of who submits the job."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ..errors import CodeFolderUnusable

#: Seconds for a clone.
CLONE_S: Final = 1800.0
#: git asks for no password on the terminal: a command line in a script would wait for ever.
_ENVIRONMENT: Final = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
#: Variables by which git would work on another repository, such as that of a hook in which the command line runs.
ELSEWHERE: Final = (
    *(
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_NAMESPACE",
    ),
    *(
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_SHALLOW_FILE",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
    ),
)


def clone(url: str, ref: str | None, folder: Path) -> None:
    """Check out `ref` (a branch, a tag, or a full commit; None: the default branch) in an empty folder, with submodules.

    Raises CodeFolderUnusable.
    """
    if shutil.which("git") is None:
        raise _refusal("git is not installed on this machine", "git", "Install git, or name a folder in code.dir.")
    _run(folder, "git", "init", "--quiet")
    _run(
        folder, "git", "config", "remote.origin.url", url
    )  # by which git finds submodules that are named relative to it
    _run(folder, "git", "fetch", "--quiet", "--depth=1", "--end-of-options", url, ref or "HEAD")
    _run(folder, "git", "-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD")
    _run(folder, "git", "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")


def _run(folder: Path, *command: str) -> None:
    known = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**known, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # without a terminal that ssh could ask on
            capture_output=True,
            timeout=CLONE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _refusal(f"git did not end within {CLONE_S:g} s", "git", "Try again, or name a folder.") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        why = next((line for line in said if line.startswith(("fatal:", "error:"))), said[-1] if said else "no reason")
        field = "ref" if "remote ref" in why or "not our ref" in why else "git"
        remedy = (
            "Name a branch, a tag, or a full commit that the server gives out."
            if field == "ref"
            else "Correct the address. For a private repository, set up git's credential helper or an SSH key on this machine."
        )
        raise _refusal(why.removeprefix("fatal: ").removeprefix("error: ").rstrip("."), field, remedy)


def _refusal(why: str, field: str, remedy: str) -> CodeFolderUnusable:
    return CodeFolderUnusable(f"The repository cannot be cloned: {why}.", field=f"code.{field}", remedy=remedy)
