"""Code from a git repository: a real one, served over HTTP by git itself."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from harness.http_server import http_server

from shardyard.api import spec_file
from shardyard.api.client import code_folder
from shardyard.api.client.git_clone import clone
from shardyard.api.errors import CodeFolderUnusable


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env={**os.environ, **own}, check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on main, the tag v1 at the first, and a branch."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    for version in ("one", "two"):
        (folder / "train.py").write_text(version)
        git(folder, "add", ".")
        git(folder, "commit", "-m", version)
        if version == "one":
            git(folder, "tag", "v1")
    git(folder, "branch", "try", "v1")
    return folder


@pytest.fixture
def address(repository: Path) -> Iterator[str]:
    """Where `git http-backend` serves it; below `/private/` it asks for a password."""

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/private/"):
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic realm=git")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            variables = {
                "GIT_PROJECT_ROOT": str(repository.parent), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "PATH": os.environ["PATH"],
            }  # fmt: skip
            size = int(self.headers.get("Content-Length", "0"))
            done = subprocess.run(
                ["git", "-c", "safe.directory=*", "http-backend"],
                env=variables, input=self.rfile.read(size), capture_output=True, timeout=60, check=False,
            )  # fmt: skip
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None: ...

    with http_server(Backend) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_branch_a_tag_and_a_commit_are_cloned(repository: Path, address: str, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "v1")
    found = {}
    for number, ref in enumerate((None, "main", "v1", "try", first)):
        (folder := tmp_path / str(number)).mkdir()
        clone(f"{address}/repository/.git", ref, folder)
        found[ref] = (folder / "train.py").read_text()
    assert found == {None: "two", "main": "two", "v1": "one", "try": "one", first: "one"}


def test_a_repository_of_the_environment_is_left_alone(
    repository: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of another repository."""
    (other := tmp_path / "other").mkdir()
    git(other, "init")
    git(other, "commit", "--allow-empty", "-m", "mine")
    before = git(other, "rev-parse", "HEAD")
    with monkeypatch.context() as patched:
        patched.setenv("GIT_DIR", str(other / ".git"))
        (folder := tmp_path / "clone").mkdir()
        clone(f"{address}/repository/.git", "v1", folder)
        assert (folder / "train.py").read_text() == "one" and code_folder.files(folder, []) == ["train.py"]
    assert git(other, "rev-parse", "HEAD") == before and git(other, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_submodules_may_be_named_relative_to_the_repository(repository: Path, address: str, tmp_path: Path) -> None:
    (library := repository.parent / "library").mkdir()
    git(library, "init")
    (library / "lib.py").write_text("lib")
    git(library, "add", ".")
    git(library, "commit", "-m", "lib")
    (repository / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../../library/.git\n')
    git(repository, "-c", "protocol.file.allow=always", "clone", str(library), "lib")
    git(repository, "add", ".gitmodules", "lib")
    git(repository, "commit", "-m", "with a library")
    (folder := tmp_path / "clone").mkdir()
    clone(f"{address}/repository/.git", None, folder)
    assert (folder / "lib" / "lib.py").read_text() == "lib"
    assert code_folder.files(folder, []) == [".gitmodules", "lib/lib.py", "train.py"]


def test_its_files_are_packed_with_the_commit(repository: Path, address: str) -> None:
    document = {"name": "mine", "command": "true", "code": {"git": f"{address}/repository/.git", "ref": "v1"}}
    with code_folder.packed(document) as packed:
        assert packed is not None
        assert (packed.manifest.files, packed.manifest.commit) == (1, git(repository, "rev-parse", "v1"))
        assert packed.manifest.diff is None
        assert packed.named_in(document)["code"] == {**document["code"], "archive": packed.manifest.digest}  # type: ignore[dict-item]
    with code_folder.packed(spec_file.absolute({"code": {"git": "repository"}}, repository.parent)) as packed:
        assert packed is not None and packed.manifest.commit == git(repository, "rev-parse", "main")


@pytest.mark.parametrize(
    ("path", "ref", "field", "says"),
    [
        ("repository/.git", "absent", "code.ref", "absent"),
        ("repository/.git", "--upload-pack=true", "code.", "upload-pack"),
        ("nothing/.git", None, "code.git", "not found"),
        ("private/.git", None, "code.git", "could not read Username"),
    ],
)
def test_what_cannot_be_cloned_is_explained(
    address: str, tmp_path: Path, path: str, ref: str | None, field: str, says: str
) -> None:
    with pytest.raises(CodeFolderUnusable, match=says) as refused:
        clone(f"{address}/{path}", ref, tmp_path)
    assert (refused.value.field or "").startswith(field) and refused.value.remedy


@pytest.mark.parametrize("url", ["ext::sh -c touch% {}", "--upload-pack=touch {}", "-u touch {}"])
def test_an_address_runs_no_command(tmp_path: Path, url: str) -> None:
    (folder := tmp_path / "clone").mkdir()
    with contextlib.suppress(CodeFolderUnusable):
        clone(url.format(tmp_path / "ran"), None, folder)
    assert not (tmp_path / "ran").exists()
