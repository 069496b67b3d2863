"""The package, its distribution and its chart have one version."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

from shardyard.version import __version__

ROOT = Path(__file__).parents[2]


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((ROOT / "deploy/chart/shardyard/Chart.yaml").read_text())
    assert {project["version"], version("shardyard"), chart["version"], chart["appVersion"]} == {__version__}
