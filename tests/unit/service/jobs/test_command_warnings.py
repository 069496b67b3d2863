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
        ("python run.py --master-addr=$(echo $NODES | head -n1) \\\n  train.py", "run.py"),
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


def test_a_long_word_is_read_in_one_pass() -> None:
    command = ["a/" * 1_000_000 + "$"]  # longer than a spec may have it, of which one took seconds
    assert warnings(spec(["true"]).model_copy(update={"command": command})) == []


ONE = "Write the script itself, as in command: [python, train.py]"


@pytest.mark.parametrize(
    ("command", "name", "remedy"),
    [
        (["torchrun", "--nproc-per-node", "4", "/a/train.py"], "torchrun", "command_per: node"),
        (["/usr/bin/torchrun", "/a/train.py"], "torchrun", "command_per: node"),
        (["python3.12", "-u", "-m", "torch.distributed.run", "/a/train.py"], "torchrun", "command_per: node"),
        ("cd /a\nNCCL_DEBUG=INFO uv run torchrun --nnodes=$NODES train.py", "torchrun", "command_per: node"),
        (["accelerate", "launch", "/a/train.py"], "accelerate launch", ONE),
        (["deepspeed", "--num_gpus=4", "/a/train.py"], "deepspeed", ONE),
        ("mpirun -np 4 python /a/train.py", "mpirun", ONE),
    ],
)
def test_a_launcher_in_each_rank_is_named(command: str | list[str], name: str, remedy: str) -> None:
    [found] = warnings(spec(command, ranks=4))
    assert found.message == (
        f"{name} starts ranks itself, and each of the 4 ranks runs it: they form 4 groups instead of one, which share devices and ports."
    )
    assert found.field == "command" and ONE in (found.remedy or "") and remedy in (found.remedy or "")
    [elastic] = warnings(spec(command, ranks={"min": 1, "max": 8}))
    assert "each of the 8 ranks" in elastic.message
    assert warnings(spec(command, ranks=4, ray=True)) == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], False),
        (["--standalone", "--nproc_per_node=1"], False),
        (["--nproc-per-node", "gpu"], False),
        (["--nproc-per-node", "4"], True),
        (["--nproc_per_node=2"], True),
        (["--nproc_per_node=$LOCAL_WORLD_SIZE"], False),
    ],
)
def test_a_launcher_may_start_the_one_rank_of_a_job(options: list[str], found: bool) -> None:
    assert bool(warnings(spec(["torchrun", *options, "/a/train.py", "--nproc-per-node=7"]))) is found


@pytest.mark.parametrize(
    "command",
    [
        ["python", "/a/train.py", "torchrun"],
        ["python", "-m", "torch.utils.collect_env"],
        ["python", "-m"],
        ["accelerate", "env"],
        ["pip", "install", "deepspeed"],
        ["nsys", "launch", "/a/x"],
        "which torchrun; python /a/train.py",
    ],
)
def test_what_starts_no_ranks_is_not(command: str | list[str]) -> None:
    assert warnings(spec(command, ranks=4)) == []


def per_node(command: str | list[str], ranks: int = 8) -> list[str]:
    return [found.message for found in warnings(spec(command, command_per="node", ranks=ranks, ranks_per_node=4))]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["torchrun", "--nnodes", "1", "/a/train.py"], "--nnodes 1"),
        (["torchrun", "--nnodes=1:1", "/a/train.py"], "--nnodes 1:1"),
        (["torchrun", "--standalone", "/a/train.py"], "--standalone"),
        ("accelerate launch --num_machines 1 /a/train.py", "--num_machines 1"),
        (["deepspeed", "--num_nodes=1", "/a/train.py"], "--num_nodes 1"),
    ],
)
def test_a_group_on_each_of_several_nodes_is_named(command: str | list[str], option: str) -> None:
    assert per_node(command) == [f"{option} makes a group of the ranks of each node, and the job has 2 nodes."]
    assert per_node(command, ranks=4) == []


def test_a_launcher_on_each_node_reads_its_numbers() -> None:
    assert per_node(["torchrun", "/a/train.py", "--nnodes", "1"]) == []
    assert per_node("torchrun --nnodes $GROUP_WORLD_SIZE --nproc-per-node 4 /a/train.py") == []
    assert per_node("torchrun --nproc-per-node $PET_NPROC_PER_NODE /a/train.py") == []
    [message] = per_node(["torchrun", "--nproc_per_node", "8", "/a/train.py"])
    assert message == "--nproc_per_node 8 does not say that a node has 4 ranks, as ranks_per_node does."
