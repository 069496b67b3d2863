"""The doors open fast: no torch and no Ray behind the API, no server behind the command line."""

import subprocess
import sys

import pytest


def imported(statement: str, *names: str) -> str:
    """Which of the modules are loaded after a statement in a fresh interpreter."""
    script = f"import sys\n{statement}\nprint(sorted(set({names!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "import shardyard.api.app",
        "import shardyard.api.daemon.control_plane",
        "import shardyard.api.client",
        "import shardyard",
    ],
)
def test_the_api_needs_no_torch_and_no_ray(statement: str) -> None:
    assert imported(statement, "torch", "ray") == "[]"


def test_the_command_line_needs_no_server() -> None:
    servers = ("torch", "ray", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic")
    run = "from shardyard.api.cli.main import run; run(['list', '--url', 'http://127.0.0.1:1'])"
    assert imported(run, *servers) == "[]"


def test_the_package_offers_the_client() -> None:
    assert imported("import shardyard; shardyard.Client; shardyard.__version__", "fastapi") == "[]"
