"""Which files of a folder are uploaded, and what is recorded of its commit."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shardyard.api.client import code_folder
from shardyard.api.errors import CodeFolderUnusable
from shardyard.workers.messages import json_codec
from shardyard.workers.spec import MAX_SPEC_BYTES


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env={**os.environ, **own}, check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()


def test_outside_a_repository_gitignore_files_decide(tmp_path: Path) -> None:
    """Those of inner folders win, as in git; what is usually of no use is left out."""
    write(
        tmp_path,
        "train.py",
        "data/a.bin",
        "data/keep.txt",
        "pkg/a.log",
        "pkg/b.py",
        "out.log",
        ".venv/x",
        "venv/x",
        "__pycache__/y.pyc",
    )
    (tmp_path / ".gitignore").write_text("*.log\ndata/*\n!data/keep.txt\n!venv/\n")
    (tmp_path / "pkg/.gitignore").write_text("!a.log\nb.py\n")
    (tmp_path / "link").symlink_to("pkg")
    assert code_folder.files(tmp_path, []) == [
        ".gitignore",
        "data/keep.txt",
        "link",
        "pkg/.gitignore",
        "pkg/a.log",
        "train.py",
        "venv/x",
    ]
    assert code_folder.files(tmp_path, ["pkg/", ".gitignore", "venv/"]) == ["data/keep.txt", "link", "train.py"]


@pytest.mark.parametrize("repository", [False, True])
def test_the_remedy_for_a_link_out_of_the_folder_leaves_it_out(repository: bool, tmp_path: Path) -> None:
    """Also that of a folder, which the pattern of a folder does not match in a .gitignore file."""
    folder, elsewhere = tmp_path / "code", tmp_path / "elsewhere"
    write(folder, "train.py", "sub/a.py")
    elsewhere.mkdir()
    for link in ("data", "sub/data"):
        (folder / link).symlink_to(elsewhere)
    if repository:
        git(folder, "init")
    document = {"code": {"dir": str(folder)}}
    with pytest.raises(CodeFolderUnusable, match="points out") as refused, code_folder.packed(document):
        pass
    assert "data/" in refused.value.remedy
    with code_folder.packed({"code": {"dir": str(folder), "ignore": ["data/"]}}) as found:
        assert found is not None and found.manifest.files == 2


def test_lines_of_a_gitignore_that_are_no_patterns_are_disregarded_as_git_does(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "bin/a", "train.py")
    (tmp_path / ".gitignore").write_text("bin\\\n!\n\n*.log\n")
    kept = [".gitignore", "bin/a", "train.py"]
    assert code_folder.files(tmp_path, []) == kept
    git(tmp_path, "init")
    assert code_folder.files(tmp_path, []) == kept


@pytest.mark.parametrize("repository", [False, True])
def test_a_name_that_is_no_utf_8_is_uploaded_too(repository: bool, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    (tmp_path / name).touch()
    if repository:
        git(tmp_path, "init")
    assert code_folder.files(tmp_path, ["*.ckpt"]) == [name]


def test_in_a_repository_git_decides(tmp_path: Path) -> None:
    """Tracked files, also ignored ones, and new ones; not deleted ones. Of a folder in it only its own."""
    write(tmp_path, "a.py", "gone.py", "forced.log", "sub/b.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    git(tmp_path, "init")
    git(tmp_path, "add", "-f", ".")
    git(tmp_path, "commit", "-m", "x")
    write(tmp_path, "new.py", "other.log", "sub/new.py")
    (tmp_path / "gone.py").unlink()
    assert code_folder.files(tmp_path, []) == [".gitignore", "a.py", "forced.log", "new.py", "sub/b.py", "sub/new.py"]
    assert code_folder.files(tmp_path / "sub", []) == ["b.py", "new.py"]
    assert code_folder.files(tmp_path, ["sub/**"]) == [".gitignore", "a.py", "forced.log", "new.py"]


def test_files_of_a_repository_inside_are_uploaded_too(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "inner/b.py")
    git(tmp_path / "inner", "init")
    git(tmp_path, "init")
    assert code_folder.files(tmp_path, []) == ["a.py", "inner/b.py"]


def test_a_submodule_is_uploaded_if_it_is_checked_out(tmp_path: Path) -> None:
    write(tmp_path / "library", "b.py")
    git(tmp_path / "library", "init")
    git(tmp_path / "library", "add", ".")
    git(tmp_path / "library", "commit", "-m", "x")
    write(tmp_path / "main", "a.py")
    git(tmp_path / "main", "init")
    git(tmp_path / "main", "-c", "protocol.file.allow=always", "submodule", "add", str(tmp_path / "library"), "sub")
    assert code_folder.files(tmp_path / "main", []) == [".gitmodules", "a.py", "sub/b.py"]
    git(tmp_path / "main", "submodule", "deinit", "-f", "sub")
    assert code_folder.files(tmp_path / "main", []) == [".gitmodules", "a.py"]


def test_the_commit_and_the_changes_since_are_recorded(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    document = {"code": {"dir": str(tmp_path)}, "command": ["x"]}
    with code_folder.packed(document) as first:
        assert first is not None
        assert (first.manifest.commit, first.manifest.diff) == (git(tmp_path, "rev-parse", "HEAD"), None)
        assert first.named_in(document)["code"] == {"dir": str(tmp_path), "archive": first.manifest.digest}
    (tmp_path / "a.py").write_text("changed\n")
    with code_folder.packed(document) as second:
        assert second is not None and "+changed" in (second.manifest.diff or "")
        assert second.manifest.digest != first.manifest.digest
    (tmp_path / "b.py").write_text("TOKEN=x\n")
    kept = {**document, "code": {"dir": str(tmp_path), "ignore": ["b.*"]}}
    with code_folder.packed(kept) as without:
        assert without is not None and without.manifest.diff is not None
        assert "+changed" in without.manifest.diff and "TOKEN" not in without.manifest.diff
    (tmp_path / "a.py").write_text("ж\n" * 200_000)
    with code_folder.packed(document) as third:
        assert third is not None and "+ж" in (third.manifest.diff or "")
        assert len(json_codec.dumps(third.manifest)) < MAX_SPEC_BYTES


def test_what_names_no_folder_is_left_for_the_server() -> None:
    for document in (None, {}, {"code": None}, {"code": {"dir": 3}}, {"code": {"dir": "/x", "archive": "0" * 64}}):
        with code_folder.packed(document) as found:
            assert found is None


def large(folder: Path) -> None:
    with (folder / "big").open("xb") as file:
        file.truncate(3 << 30)


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.rmdir, "not a folder"),
    "empty": (lambda folder: None, "no file to upload"),
    "fifo": (lambda folder: os.mkfifo(folder / "pipe"), "neither a file nor a link"),
    "link": (lambda folder: (folder / "link").symlink_to("/etc/passwd"), "points out of the folder"),
    "large": (large, "the largest file is big"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_folder_that_cannot_be_uploaded_is_refused_with_a_remedy(case: str, tmp_path: Path) -> None:
    make, why = UNUSABLE[case]
    folder = tmp_path / "code"
    folder.mkdir()
    make(folder)
    with (
        pytest.raises(CodeFolderUnusable, match=why) as refused,
        code_folder.packed({"code": {"dir": str(folder)}}),
    ):
        pass
    assert refused.value.field == "code.dir" and refused.value.remedy


def test_too_many_files_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardyard.workers.code_archive.MOST_FILES", 3)
    write(tmp_path, "a", "b", "c", "d")
    with (
        pytest.raises(CodeFolderUnusable, match="more than 3 files"),
        code_folder.packed({"code": {"dir": str(tmp_path)}}),
    ):
        pass
    with code_folder.packed({"code": {"dir": str(tmp_path), "ignore": ["d"]}}) as found:
        assert found is not None and found.manifest.files == 3


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"env": {"python": "requirments.txt"}}, "env.python"),
        ({"env": {"python": "./sub/../ignored.txt"}}, "env.python"),
        ({"env": {"conda": "environment.yml"}}, "env.conda"),
        ({"cwd": "srcc"}, "cwd"),
    ],
)
def test_a_name_that_is_not_uploaded_is_refused_before_the_upload(
    named: dict[str, object], field: str, tmp_path: Path
) -> None:
    write(tmp_path, "requirements.txt", "src/train.py", "ignored.txt")
    spec = {"code": {"dir": str(tmp_path), "ignore": ["ignored.txt"]}, **named}
    with pytest.raises(CodeFolderUnusable, match="not in the uploaded code") as refused, code_folder.packed(spec):
        pass
    assert refused.value.field == field and refused.value.remedy


@pytest.mark.parametrize(
    "named",
    [
        {"env": {"python": "requirements.txt"}, "cwd": "src"},
        {"files": {"data/train": "s3://bucket/corpus"}, "cwd": "data"},
        {"env": {"python": "./requirements.txt"}, "cwd": "./src/."},
        {"env": {"python": ["einops"]}, "cwd": "."},
        {"env": {"python": "/shared/requirements.txt"}, "cwd": "/shared"},
        {"env": {"conda": "link/environment.yml"}, "cwd": "link/inner"},
        {"files": {"data": "s3://bucket/data"}, "cwd": "data/train"},
        {"env": None, "files": [], "cwd": 3},
    ],
)
def test_names_that_are_uploaded_linked_or_elsewhere_are_not(named: dict[str, object], tmp_path: Path) -> None:
    write(tmp_path, "requirements.txt", "src/train.py")
    (tmp_path / "link").symlink_to("src")
    with code_folder.packed({"code": {"dir": str(tmp_path)}, **named}) as packed:
        assert packed is not None
