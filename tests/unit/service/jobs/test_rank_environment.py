from collections.abc import Mapping

import pytest

from shardyard.service.errors import InvalidSpec
from shardyard.service.jobs.rank_environment import check, warnings
from shardyard.service.spec import CommandSpec, JobSpec


def training(env: Mapping[str, str]) -> JobSpec:
    return JobSpec.model_validate({"name": "mine", "train": {"steps": 1, "global_batch": 1}, "resources": {"env": env}})


def program(env: Mapping[str, str]) -> CommandSpec:
    return CommandSpec.model_validate({"name": "mine", "command": "true", "resources": {"env": env}})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("MASTER_ADDR", "numbers the ranks"),
        ("RANK", "numbers the ranks"),
        ("CUDA_VISIBLE_DEVICES", "gives each rank its device"),
        ("LD_PRELOAD", "forked from a process"),
        ("OMP_NUM_THREADS", "one per core"),
        ("TORCH_LOGS", "when it is imported"),
        ("RAY_AUTH_TOKEN", "not passed to trainers"),
        ("SHARDYARD_NODE", "own settings"),
    ],
)
def test_a_variable_of_the_machinery_is_refused_by_name(name: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match=says) as refused:
        check(training({"NCCL_DEBUG": "INFO", name: "1"}))
    assert refused.value.field == f"resources.env.{name}" and refused.value.remedy


def test_other_variables_are_the_jobs_own() -> None:
    env = {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1", "PYTORCH_ALLOC_CONF": "x", "RANKING": "1"}
    check(training(env))


def test_only_a_program_chooses_its_allocators_backend() -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        env = {name: "max_split_size_mb:512, backend : cudaMallocAsync"}
        with pytest.raises(InvalidSpec, match="imported torch") as refused:
            check(training(env))
        assert refused.value.field == f"resources.env.{name}" and "Leave backend out" in (refused.value.remedy or "")
        check(program(env))


def test_a_name_that_says_secret_or_a_url_with_a_password_is_warned_of() -> None:
    env = {
        "HF_TOKEN": "a",
        "aws_secret_access_key": "b",
        "DB_PASSWORD": "c",
        "TOKENIZERS_PARALLELISM": "d",
        "KEYS": "e",
        "UV_INDEX_URL": "https://me:secret@example.com/simple",
        "UV_FIND_LINKS": "https://example.com/simple",
    }
    found = warnings(env)
    assert [one.field for one in found] == [
        "resources.env.HF_TOKEN",
        "resources.env.aws_secret_access_key",
        "resources.env.DB_PASSWORD",
        "resources.env.UV_INDEX_URL",
    ]
    assert all("read the specs" in one.message and one.remedy for one in found)


def test_a_program_may_set_what_only_concerns_its_own_process() -> None:
    check(program({"PYTHONPATH": "lib", "OMP_NUM_THREADS": "4", "LD_LIBRARY_PATH": "/opt"}))
    for name in ("RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_RUN_ID", "SHARDYARD_JOB"):
        with pytest.raises(InvalidSpec):
            check(program({name: "1"}))
