"""The package is what the folders are, every dependency is pinned, and the repository can be built anywhere."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import dockerfile_parse
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("api", "service", "strategies", "workers")
PINS = (ROOT / "constraints.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def requirements(pyproject: dict[str, Any]) -> list[Requirement]:
    """All direct dependencies, those of the extras too."""
    extras = pyproject["project"]["optional-dependencies"].values()
    lines = [*pyproject["project"]["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines if not line.startswith("shardyard[")]


def committed() -> list[Path]:
    """The files of the repository; those that git ignores, or that a checkout without git has built, are not among them."""
    found = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if found.returncode == 0:
        return [path for name in found.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    inside = (path for path in ROOT.rglob("*") if not ignored & {*path.relative_to(ROOT).parts})
    return [path for path in inside if path.is_file()]


def test_packages_are_the_folders_with_python_files(pyproject: dict[str, Any]) -> None:
    folders = {path.parent for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}
    inside = {folder for folder in folders if "node_modules" not in folder.parts}
    names = {"shardyard", *(f"shardyard.{'.'.join(folder.relative_to(ROOT).parts)}" for folder in inside)}
    assert set(pyproject["tool"]["setuptools"]["packages"]) == names


def test_every_package_has_an_init(pyproject: dict[str, Any]) -> None:
    for name in pyproject["tool"]["setuptools"]["packages"]:
        assert ROOT.joinpath(*name.split(".")[1:], "__init__.py").exists(), name


def test_every_direct_dependency_is_pinned(requirements: list[Requirement]) -> None:
    pinned = dict(pin.split("==") for pin in PINS if not pin.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    for requirement in requirements:
        assert versions.get(canonicalize_name(requirement.name), "none") in requirement.specifier, requirement


def test_pins_are_exact_and_neutral() -> None:
    for pin in PINS:
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin), pin
    assert "torch==2.13.0" in PINS
    assert not any(pin.startswith("shardyard") for pin in PINS)


def test_dependencies_hold_what_the_product_stands_on(requirements: list[Requirement]) -> None:
    by_name = {requirement.name: requirement for requirement in requirements}
    assert {"torch", "fastapi", "uvicorn", "sqlalchemy", "pytest"} <= by_name.keys()
    assert by_name["ray"].extras == {"default", "train"}


def test_ci_calls_make_test_and_nothing_else() -> None:
    run = ROOT / ".ci" / "run"
    assert run.read_text().splitlines() == ["#!/usr/bin/env bash", "exec make test"]
    assert run.stat().st_mode & 0o111


def test_make_alone_prints_every_target_with_its_purpose() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    said = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert {line.split()[0] for line in said.splitlines()} == set(phony[1].split()) - {"help"}


def test_pre_commit_needs_no_network() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in repos} == {"local"}
    assert {hook["language"] for repo in repos for hook in repo["hooks"]} == {"system"}


# Written so that this file does not find itself.
PATHS = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/[\w.]")
HOSTS = re.compile(
    r"registry\.np[m]js|pypi\.or[g]|pythonhosted\.or[g]|registry\.yarn[p]kg|download\.pytorc[h]|deb\.debia[n]"
)


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    found = []
    for path in committed():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [(str(path.relative_to(ROOT)), hit[0]) for hit in (PATHS.search(text), HOSTS.search(text)) if hit]
    assert found == []


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> dockerfile_parse.DockerfileParser:
    copy = tmp_path_factory.mktemp("docker") / "Dockerfile"
    copy.write_text((ROOT / "deploy" / "docker" / "Dockerfile").read_text())
    return dockerfile_parse.DockerfileParser(str(copy), env_replace=False)


def instructions(dockerfile: dockerfile_parse.DockerfileParser, name: str) -> list[str]:
    return [one["value"] for one in dockerfile.structure if one["instruction"] == name]


def test_the_image_copies_what_exists_and_is_sent(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    sent = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [value.split()[:-1] for value in instructions(dockerfile, "COPY") if not value.startswith("--from")]
    for source in (source for sources in copies for source in sources):
        assert (ROOT / source).exists(), source
        assert Path(source).parts[0] in sent, f"{source} is ignored by .dockerignore"


def test_the_image_holds_all_floors_and_the_modules_beside_them(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    copied = {source for value in instructions(dockerfile, "COPY") for source in value.split()}
    assert {f"{floor}/" for floor in FLOORS} <= copied
    modules = {path.name for path in ROOT.glob("*.py")}
    assert {"__init__.py", "version.py"} <= modules <= copied


def test_the_image_has_the_extras_that_a_spec_may_need(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    """Its file system is read-only: nothing can be installed later."""
    extras = next(value for value in instructions(dockerfile, "RUN") if "optional-dependencies" in value)
    assert all(f'"{extra}"' in extras for extra in ("postgres", "s3", "hub", "tensorboard", "sweeps", "fp8"))


def test_the_image_runs_as_a_user_under_an_init(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    last = max(i for i, one in enumerate(dockerfile.structure) if one["instruction"] == "FROM")
    final = {one["instruction"]: one["value"] for one in dockerfile.structure[last:]}
    assert final["USER"] == "10001:10001"
    assert final["ENTRYPOINT"] == '["/usr/bin/tini", "-g", "--"]'
    assert "tini" in next(value for value in instructions(dockerfile, "RUN") if "apt-get" in value)


def test_the_image_has_what_nccl_and_triton_load(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    """NCCL's InfiniBand transport, and a C compiler. Python's headers are part of the base image."""
    last = max(i for i, one in enumerate(dockerfile.structure) if one["instruction"] == "FROM")
    runs = [one["value"] for one in dockerfile.structure[last:] if one["instruction"] == "RUN"]
    installed = next(run for run in runs if "apt-get install" in run).split()
    assert {"libibverbs1", "ibverbs-providers", "librdmacm1", "gcc", "libc6-dev"} <= set(installed)


def test_the_image_is_built_from_pinned_bases_and_dependencies(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    for base in dockerfile.parent_images:
        assert re.search(r":[\w.-]+$", base), base
        assert not base.endswith(":latest")
    for command in instructions(dockerfile, "RUN"):
        if "pip install" in command and "--no-deps" not in command:
            assert "--constraint constraints.txt" in command


def test_the_image_has_the_tested_python(dockerfile: dockerfile_parse.DockerfileParser) -> None:
    assert dockerfile.baseimage.startswith("python:3.11-")


def test_a_login_shell_of_the_image_finds_its_commands(
    dockerfile: dockerfile_parse.DockerfileParser, tmp_path: Path
) -> None:
    """KubeRay's ENABLE_LOGIN_SHELL; /etc/profile sets a PATH of its own, and reads /etc/profile.d."""
    written = [re.search(r"echo '(.*)' > /etc/profile\.d/(\w+\.sh)", run) for run in instructions(dockerfile, "RUN")]
    [(line, name)] = [found.groups() for found in written if found]
    (tmp_path / name).write_text(f"{line}\n")
    [path] = re.findall(r"PATH=([^:]+):\$PATH HOME=", " ".join(instructions(dockerfile, "ENV")))
    alone = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" /etc/profile.d && exec "$@"',
        str(tmp_path),
    ]
    for shell in ("bash", "sh"):
        asked = [*alone, shell, "-lc", "echo $PATH"]
        done = subprocess.run(
            asked, env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=30, check=False
        )
        if "unshare" in done.stderr:
            pytest.skip(done.stderr)
        assert done.stdout.split(":")[0] == path, done.stderr
        assert "/usr/bin" in done.stdout
