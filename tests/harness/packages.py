"""Small Python packages and a local index of them, for uv."""

import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

#: A build backend that says that it has begun, by a file with its process id, and waits for another file.
_BACKEND = """
import os, pathlib, time, zipfile
def build_wheel(folder, *_, **__):
    pathlib.Path({started!r}).write_text(str(os.getpid()))
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.02)
    if {error!r}:
        raise RuntimeError({error!r})
    name = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for path, text in {files!r}.items():
            wheel.writestr(path, text)
    return name
"""


def variables(folder: Path) -> dict[str, str]:
    """uv's variables for packages from this folder alone."""
    return {"UV_DEFAULT_INDEX": folder.as_uri(), "UV_FIND_LINKS": str(folder), "UV_HTTP_RETRIES": "0"}


def wheel(folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = (), code: str = "") -> None:
    """A wheel with one module."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in _files(name, version, requires, code).items():
            archive.writestr(path, text)


def gated_source(folder: Path, name: str, error: str = "") -> None:
    """A source distribution whose build begins by making the file NAME.started, and goes on when there is NAME.go."""
    folder.mkdir(parents=True, exist_ok=True)
    gates = {"started": str(folder / f"{name}.started"), "go": str(folder / f"{name}.go")}
    backend = _BACKEND.format(name=name, error=error, files=_files(name, "1.0", (), ""), **gates)
    members = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
    }
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, text in members.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def _files(name: str, version: str, requires: Sequence[str], code: str) -> dict[str, str]:
    facts = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    return {
        f"{name}.py": code,
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/RECORD": "",
    }
