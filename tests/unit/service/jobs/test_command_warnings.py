"""Commands that probably do something else than meant are named with a remedy; others are not."""

from typing import Any

import pytest

from shardyard.service.jobs import spec_warnings
from shardyard.service.jobs.command_warnings import warnings
from shardyard.service.spec import CommandSpec


def spec(command: str | list[str], **fields: Any) -> CommandSpec:
    return CommandSpec.model_validate({"name": "a", "command": command, **fields})


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "train.py"], "train.py"),
        (["python", "-u", "src/train.py", "--lr", "0.1"], "src/train.py"),
        (["uv", "run", "train.py"], "train.py"),
        (["./run.sh", "3"], "./run.sh"),
        (["venv/bin/python", "-m", "train"], "venv/bin/python"),
        (["bash", "-lc", "ulimit -n 9999; python train.py"], "train.py"),
        ("python train.py --lr 0.1 2>&1 | tee log.txt", "train.py"),
        ("pip install -r requirements.txt && OMP_NUM_THREADS=1 python train.py", "train.py"),
        ("if true; then\n  exec scripts/start\nfi", "scripts/start"),
        ("torchrun --master-addr=$(echo $NODES | head -n1) \\\n  train.py", "train.py"),
    ],
)
def test_a_script_that_is_not_sent_is_named(command: str | list[str], named: str) -> None:
    [found] = warnings(spec(command))
    assert found.field == "command" and f"It finds {named!r} only" in found.message
    assert "code: {dir: .}" in (found.remedy or "") and "home folder" in found.message
    assert spec_warnings.warnings(spec(command)) == [found]
    assert warnings(spec(command, files={"data": "s3://bucket/data"})) == [found]
    assert warnings(spec(command, code={"dir": "/here"})) == []
    assert warnings(spec(command, cwd="/shared/project")) == []


@pytest.mark.parametrize(
    "command",
    [
        ["true"],
        ["python", "-c", "import train; train.main('a.py')"],
        ["python", "-m", "train"],
        ["python", "/shared/train.py", "config=small.py", "s3://bucket/a.py", "--config=b.py"],
        "python $HOME/train.py ~/b.py # c.py",
        "cd /shared/project && python train.py",
        "git clone https://host/a && python a/train.py",
        "cat > train.py <<END\nprint(1)\nEND\npython train.py",
        "python 'train.py",
        "# train.py's folder is /shared\npython /shared/train.py",
    ],
)
def test_a_command_that_finds_its_files_is_not(command: str | list[str]) -> None:
    assert warnings(spec(command)) == []
