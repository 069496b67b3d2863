"""Files of conda: what counts in them, and what no node could build, or could not share."""

from pathlib import Path

import pytest
import yaml

from shardyard.workers.program.build_process import EnvironmentNotBuilt
from shardyard.workers.program.conda_file import read_conda_file

FILE = """\
name: mine  # of no meaning here
channels: [conda-forge, "https://conda.example.com/ours"]
dependencies:
  - conda-forge::python=3.12
  - numpy>=2
  - pip
  - pip: [einops==0.8, "torch @ https://example.com/torch.whl"]
prefix: /opt/envs/mine
"""


def read(folder: Path, text: str) -> str:
    (folder / "environment.yml").write_text(text)
    return read_conda_file(folder / "environment.yml")


def test_channels_and_packages_are_what_counts(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    assert yaml.safe_load(found) == {
        "channels": ["conda-forge", "https://conda.example.com/ours"],
        "dependencies": [
            "conda-forge::python=3.12",
            "numpy>=2",
            "pip",
            {"pip": ["einops==0.8", "torch @ https://example.com/torch.whl"]},
        ],
    }
    renamed = FILE.replace("mine", "other").replace("  # of no meaning here", "")
    assert read(tmp_path, renamed) == found != read(tmp_path, FILE.replace("numpy>=2", "numpy>=1"))


def test_a_package_of_a_server_may_be_named_by_its_address(tmp_path: Path) -> None:
    address = "https://conda.example.com/ours/linux-64/mine-1.0-0.conda"
    found = read(tmp_path, yaml.safe_dump({"dependencies": ["python", address, {"pip": ["numpy\n"]}]}))
    assert yaml.safe_load(found)["dependencies"] == ["python", address, {"pip": ["numpy"]}]


@pytest.mark.parametrize(
    "python", ["python", "python=3.12", "python >=3.11,<3.13", "python[version='>=3.11']", "a::python"]
)
def test_python_is_found_in_all_its_spellings(tmp_path: Path, python: str) -> None:
    assert python in yaml.safe_load(read(tmp_path, yaml.safe_dump({"dependencies": [python]})))["dependencies"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "cannot be read as YAML"),
        ("[python]", "no list of dependencies"),
        ("dependencies: python", "no list of dependencies"),
        ("dependencies: [numpy, python-dateutil, pythonnet, python_abi]", "does not name python"),
        ("dependencies: []", "does not name python"),
        ("dependencies: [python, 3]", "the dependency '3'"),
        ("dependencies: [python, ./mine.conda]", "the dependency './mine.conda'"),
        ("dependencies: [python, ' ./mine.conda']", "the dependency ' ./mine.conda'"),
        ("dependencies: [python, folder/mine.tar.bz2]", "the dependency 'folder/mine.tar.bz2'"),
        ("dependencies: [python, $HOME/mine.conda]", "the dependency '$HOME/mine.conda'"),
        ("dependencies: [python, 'numpy[url=file:///mine]']", "the dependency 'numpy[url=file:///mine]'"),
        ("dependencies: [python, {conda: [x]}]", "the dependency"),
        ("dependencies: [python, {pip: [-e .]}]", "nothing is installed from the folder of the code"),
        ("dependencies: [python, {pip: [./mine]}]", "nothing is installed from the folder of the code"),
        ("dependencies: [python, {pip: [-r more.txt]}]", "write the requirements themselves"),
        ('dependencies: [python, {pip: ["numpy\\n-e ."]}]', "write the requirements themselves, one on each line"),
        ("dependencies: [python, {pip: ['torch \\', '@ file:///mine']}]", "write the requirements themselves"),
        ("dependencies: [python, {pip: ['']}]", "write the requirements themselves, one on each line"),
        ("dependencies: [python, {pip: ['a${VERSION}']}]", "variables are only for users and passwords"),
        ("dependencies: [python]\nchannels: conda-forge", "channels that are no list"),
        ("dependencies: [python]\nchannels: [./mine]", "channels that are no list"),
        ("dependencies: [python]\nvariables: {A: b}", "the key 'variables', which is not supported"),
        ("&a [*a]", "no list of dependencies"),
        ("[" * 5000, "cannot be read as YAML"),
    ],
)
def test_what_cannot_be_built_or_shared_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(EnvironmentNotBuilt) as refused:
        read(tmp_path, text)
    assert reason in str(refused.value) and "environment.yml" in str(refused.value)


def test_a_file_that_was_not_uploaded_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotBuilt, match="does not exist on this node"):
        read_conda_file(tmp_path / "environment.yml")
