"""What the files of a program's environment name."""

from pathlib import Path

import pytest

from shardyard.workers.program.build_process import EnvironmentNotBuilt
from shardyard.workers.program.requirement_files import read_requirements


def test_a_list_with_those_that_it_names_is_read(tmp_path: Path) -> None:
    """Constraints count for the contents and name no package to install. Lists that name each other end."""
    (tmp_path / "requirements.txt").write_text(
        "# ours\nTorch_Geometric>=2  # of graphs\n-r more/base.txt\n--constraint=limits.txt\n--index-url https://example.com\n"
        "einops==0.8 \\\n  --hash=sha256:00\nwheel @ https://example.com/wheel-1.0-py3-none-any.whl\n"
    )
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "base.txt").write_text("timm; python_version > '3'\n-r ../requirements.txt\n")
    found = read_requirements(tmp_path / "requirements.txt")
    assert found.names == {"torch-geometric", "timm", "einops", "wheel"} and len(found.contents) == 3


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable=./lib",
        ".",
        "./lib",
        "lib/one",
        "/shared/one-1.0-py3-none-any.whl",
        "one-1.0-py3-none-any.whl",
        "one @ file:///shared/one",
        "-f wheels",
        "-f  wheels",
        "one @ libs/one.whl",
        "one[two] @ ./one.whl",
        "git+file:///shared/one",
        "--index-url ./simple",
        "--extra-index-url=simple",
        "-i  ../simple",
    ],
)
def test_what_would_be_installed_from_the_code_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(EnvironmentNotBuilt, match="nothing is installed from the folder of the code") as refused:
        read_requirements(tmp_path / "requirements.txt")
    assert repr(line) in str(refused.value)


@pytest.mark.parametrize("line", ["one @ https://example.com/one-${V}.whl", "one @ ${PWD}/one.whl", "${HOME}/one"])
def test_variables_that_the_digest_does_not_cover_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    with pytest.raises(EnvironmentNotBuilt, match="variables are only for users and passwords"):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize(
    "line",
    [
        "one @ https://${USER}:${TOKEN}@example.com/one.whl",
        "--index-url https://${TOKEN}@example.com/simple",
        "--extra-index-url file:///mirror/simple",
        "one @ git+ssh://git@example.com/one@v1",
        "one[two] == 1.0 ; python_version < '4'",
        "git+https://github.com/a/b@main",
        "git+https://${TOKEN}@github.com/a/b.git",
        "git+ssh://git@github.com/a/b.git",
        "one [two] @ https://example.com/one.whl",
    ],
)
def test_addresses_of_packages_are_accepted(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    assert read_requirements(tmp_path / "requirements.txt").contents == (f"{line}\n".encode(),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {path = "../a"}\n',
            "names a local path for a in tool.uv.sources",
        ),
        (
            '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = [{url = "file:///shared/a.whl"}]\n',
            "names a local path for a in tool.uv.sources",
        ),
        (
            '[project]\ndependencies = ["a"]\n[tool.uv.sources]\na = {git = "file:///shared/a"}\n',
            "names a local path for a in tool.uv.sources",
        ),
        (
            '[project]\ndependencies = ["b", " a[c] @ file:///shared/a-1.0-py3-none-any.whl"]\n',
            r"has the line 'a\[c\] @ file:///shared/a-1.0-py3-none-any.whl', and nothing is installed from the folder",
        ),
        ('[project]\ndependencies = ["a @ https://x.org/${V}.whl"]\n', "variables are only for users and passwords"),
        ("[project", "cannot be read"),
        ('project = "x"', "cannot be read"),
        ("[project]\ndependencies = 3", "cannot be read"),
        ('[project]\nname = "a"\ndynamic = ["version", "dependencies"]\n', "are in other files of the code"),
        ('[build-system]\nrequires = ["setuptools"]\n', "name the file that has them in env.python"),
        ('[project]\n[tool.uv]\nfind-links = ["./wheels"]\n', r"names './wheels' in uv's find-links"),
        ('[project]\n[[tool.uv.index]]\nname = "own"\nurl = "simple"\n', "names 'simple' in uv's index"),
    ],
)
def test_a_project_that_cannot_be_installed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(EnvironmentNotBuilt, match=said):
        read_requirements(tmp_path / "pyproject.toml")


def test_settings_beside_a_project_are_read_like_its_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndependencies = ["b", "c @ https://x.org/c.whl"]\n')
    settings = tmp_path / "uv.toml"
    settings.write_text('find-links = ["https://x.org/all", "/shared/wheels"]\n')
    found = read_requirements(tmp_path / "pyproject.toml")
    assert (found.names, found.nameless, len(found.contents)) == ({"b", "c"}, (), 2)
    settings.write_text('index-url = "file:simple"\n')
    with pytest.raises(EnvironmentNotBuilt, match=r"uv\.toml names 'file:simple' in uv's index-url"):
        read_requirements(tmp_path / "pyproject.toml")


def test_ends_of_lines_and_options_hide_no_name(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(
        b"one==1.0 \\\r\n  --hash=sha256:00\r\ntwo==2.0\t--hash=sha256:00\r\ngit+https://x.org/three.git\r\n"
    )
    found = read_requirements(tmp_path / "requirements.txt")
    assert (found.names, found.nameless) == ({"one", "two"}, ("git+https://x.org/three.git",))


def test_a_file_that_is_not_there_or_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotBuilt, match=r"none\.txt does not exist on this node"):
        read_requirements(tmp_path / "none.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(EnvironmentNotBuilt, match=r"folder\.txt is a folder"):
        read_requirements(tmp_path / "folder.txt")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(EnvironmentNotBuilt, match=r"loop\.txt cannot be read: Too many levels of symbolic links"):
        read_requirements(tmp_path / "loop.txt")
