"""The blocks of a page of documentation, as a reader would run them."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def shell(page: str, end: str = "") -> str:
    """The shell commands of a page, one after the other, as a script that ends at the first that fails. `end`: only of what is above."""
    text = (DOCS / page).read_text().partition(end)[0] if end else (DOCS / page).read_text()
    return "set -euo pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def write_files(page: str, folder: Path) -> None:
    """The blocks of a page that have the name of a file as their title."""
    for name, content in re.findall(
        r'^```\w+ title="([^"]+)"\n(.*?)^```$', (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    ):
        (folder / name).write_text(content)


def run_script(script: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run it with this interpreter's commands first on the path. It has to succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**env, "PATH": path},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
