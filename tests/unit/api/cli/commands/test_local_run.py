"""`run --local` needs no control plane: a spec's ranks run here, and what cannot is refused by its field."""

import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from harness import packages
from harness.hub import Repository, running_hub
from harness.stored_checkpoints import save_checkpoint

from shardyard.api.cli.commands import local_hardware, local_run
from shardyard.api.cli.commands.local_run import decided_here, notices
from shardyard.api.cli.main import run
from shardyard.api.errors import InvalidParameter
from shardyard.api.http.validation_errors import read_spec, read_training_spec
from shardyard.service.errors import DoesNotFit
from shardyard.workers.advisor.known_hardware import Measured
from shardyard.workers.program import environment_folder
from shardyard.workers.program.files import job_files
from shardyard.workers.program.mlflow_server import OWN_SERVER

COMMAND = """\
name: here
command: [sh, -c, 'echo "$RANK $GREETING $KEY $(cat hello)"; exit $CODE']
ranks: 2
code: { dir: . }
resources: { env: { GREETING: hi, CODE: "0" }, device: cpu }
secrets: [{ name: LOCAL_TEST_KEY, variable: KEY }]
"""
TRAIN = """\
name: tiny
train:
  model: { preset: nano, layers: 1, dim: 16, heads: 2 }
  data: { seq_len: 32 }
  layout: { data: 2 }
  steps: 3
  global_batch: 4
resources: { device: cpu }
"""


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Shardyard's own data, with the cache."""
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hello").write_text("there")
    monkeypatch.setenv("LOCAL_TEST_KEY", "k")
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND)
    return path


def test_the_ranks_run_in_the_folder_of_code_with_the_jobs_variables(
    spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--local", str(spec)]) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [f"[rank {rank}] {rank} hi k there" for rank in (0, 1)]
    assert not err


def test_values_of_the_command_line_count_and_the_status_is_the_ranks(
    spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--local", str(spec), "--", "ranks=1", "resources.env.CODE='9'"]) == 9
    assert capfd.readouterr().out == "0 hi k there\n"


def test_a_script_that_would_not_be_sent_is_said(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here.sh").write_text("echo at home")
    assert run(["run", "--local", str(spec), "code=null", "ranks=1", "command=[sh, here.sh]"]) == 0
    out, err = capfd.readouterr()
    assert out == "at home\n" and "warning: command: The job has neither code nor cwd" in err and "'here.sh'" in err


def test_artifacts_of_mlflow_can_be_read_until_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in OWN_SERVER:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("""
import os, urllib.request
root = f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow-artifacts/artifacts/0/{'ab' * 16}/artifacts/a.txt"
head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
for method, data in (("PUT", b"text"), ("GET", None)):
    print(urllib.request.urlopen(urllib.request.Request(root, data, head, method=method)).read().decode())
""")
    path = tmp_path / "job.yaml"
    path.write_text("name: here\ncommand: [python, train.py]\ncode: {dir: .}\nresources: {device: cpu}\n")
    assert run(["run", "--local", str(path)]) == 0
    assert capfd.readouterr().out == "{}\ntext\n"


def test_the_environment_is_built_once_and_its_log_is_shown(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 0)
    packages.wheel(tmp_path / "index", "alpha", code="VALUE = 7")
    of_uv = packages.variables(tmp_path / "index")
    for name in of_uv:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "requirements.txt").write_text("alpha\n")
    script = "import alpha, os, shardyard, sys; print(alpha.VALUE, sys.prefix == os.environ['VIRTUAL_ENV'])"
    more = [f"resources.env={json.dumps(of_uv)}", "env={python: requirements.txt}", "ranks=1"]
    more.append(f'command=[python, -c, "{script}"]')
    for built in (True, False):
        assert run(["run", "--local", str(spec), *more]) == 0
        out, err = capfd.readouterr()
        assert out == "7 True\n" and ("+ alpha==1.0" in err) is built
    assert run(["run", "--local", str(spec), *more, "env={python: [beta]}"]) == 1
    assert "UV_FIND_LINKS" not in os.environ
    assert "The environment cannot be built: " in (said := capfd.readouterr().err) and "beta" in said


def test_files_are_fetched_and_found_in_the_code_and_the_links_are_removed(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_files, "_SPARE_BYTES", 0)
    more = [
        "files={in/data: hf://org/model}",
        "ranks=1",
        "command=[sh, -c, 'cat in/data/a $SHARDYARD_FILES/in/data/a']",
    ]
    with running_hub() as hub:
        hub.repositories["org/model"] = Repository({"a" * 40: {"a": b"fetched "}}, {"main": "a" * 40})
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert run(["run", "--local", str(spec), *more]) == 0
        assert capfd.readouterr().out == "fetched fetched " and not (tmp_path / "in").exists()
        (tmp_path / "in" / "data").mkdir(parents=True)
        (tmp_path / "in" / "data" / "a").write_text("mine ")
        assert run(["run", "--local", str(spec), *more]) == 0
    out, err = capfd.readouterr()
    assert out == "mine fetched " and f"{tmp_path}/in/data is there already" in err
    assert (tmp_path / "in" / "data" / "a").read_text() == "mine "


def test_logged_files_are_kept_by_their_names(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("""
import shardyard
for text in ("old", "new"):
    open("note.txt", "w").write(text)
    print(shardyard.log_artifact("note.txt", "notes/a.txt"), shardyard.log_artifact("note.txt", step=3))
print(shardyard.log_table("t", ["x"], [[1]]))
""")
    assert run(["run", "--local", str(spec), "ranks=1", "command=[python, train.py]"]) == 0
    assert capfd.readouterr().out == "True True\nTrue True\nTrue\n"
    kept = tmp_path / ".shardyard" / "local" / "artifacts" / "here"
    found = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert found == {"notes/a.txt": "new", "step-00000003/note.txt": "new", "t": "x\n1\n"}


def test_a_secret_that_is_a_file_is_in_memory_only(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file on the disk would remain where this process is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LOCAL_TEST_KEY", "in-no-file")
    secrets = "secrets=[{name: LOCAL_TEST_KEY, variable: KEY, file: true}]"
    shows = f"command=[sh, -c, 'cat $KEY; grep -rl in-no-file {tmp_path} || echo \" none\"']"
    assert run(["run", "--local", str(spec), secrets, shows, "ranks=1"]) == 0
    assert capfd.readouterr().out == "in-no-file none\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--json"], "--json"),
        (["--rank", "0"], "--rank"),
        (["--all-ranks"], "--all-ranks"),
        (["ranks=0"], "ranks"),
        (["ray=true"], "ray"),
        (["resources.device=cuda", "ranks=1000"], "resources.device"),
        (["secrets=[NO_SUCH_LOCAL_KEY]"], "NO_SUCH_LOCAL_KEY"),
        (["cwd=missing"], "cwd"),
        (["command=[no-such-program]"], "no-such-program"),
        (["nonsense"], "KEY=VALUE"),
        (["env={python: missing.txt}"], "The environment cannot be built: "),
        (
            ["env={python: ../requirements.txt}"],
            "'../requirements.txt' leaves its folder. (invalid_spec)\n  env.python\n",
        ),
        (["files={data: /no/such/path}"], "The files cannot be fetched: /no/such/path is not on this node"),
        (["files={/data: /}"], "is an absolute path"),
        (["files={a: /tmp, a/b: /tmp}"], "is inside"),
    ],
)
def test_what_cannot_run_here_is_refused(
    more: list[str], said: str, spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--local", str(spec), *more]) == 1
    assert said in capfd.readouterr().err


def test_what_differs_from_a_job_is_said(tmp_path: Path) -> None:
    with_files = read_spec(
        {"name": "here", "command": ["true"], "env": {"image": "cuda"}, "resume_from": "/checkpoints/old"}
    )
    assert [notice.partition(" ")[0] for notice in notices(with_files, tmp_path)] == ["env.image", "resume_from"]
    training = read_spec(yaml.safe_load(TRAIN))
    assert not list(notices(training, tmp_path))
    root = tmp_path / "checkpoints" / "tiny"
    save_checkpoint(root, 2)
    [continues] = notices(training, tmp_path)
    assert f"continues from {root}/step-00000002. Remove {root}" in continues


OPEN = TRAIN.replace("layout: { data: 2 }", "layout: { auto: { world: 2 } }")


def test_an_open_layout_is_chosen_for_this_machine() -> None:
    found = decided_here(read_training_spec(yaml.safe_load(OPEN))).train
    assert not found.undecided and found.layout.auto is not None
    assert (found.layout.world_size, found.layout.auto.devices) == (2, "2 × CPU")
    all_cores = read_training_spec(yaml.safe_load(OPEN.replace("{ auto: { world: 2 } }", "auto")))
    assert 1 <= decided_here(all_cores).train.layout.world_size <= len(os.sched_getaffinity(0))


def test_a_layout_for_this_machines_gpus_is_within_its_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = OPEN.replace("preset: nano, layers: 1, dim: 16, heads: 2", "preset: 7B, vocab: 32000").replace(
        "device: cpu", "device: cuda"
    )
    monkeypatch.setattr(local_run.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(local_run.torch.cuda, "get_device_name", lambda number: "NVIDIA A100-PCIE-40GB")
    monkeypatch.setattr(local_run, "total_memory", lambda: 80 << 30)
    spec = read_training_spec(yaml.safe_load(large))
    assert decided_here(spec).train.offload.optimizer == 1
    monkeypatch.setattr(local_run, "total_memory", lambda: 32 << 30)
    with pytest.raises(DoesNotFit, match="of host memory per rank"):
        decided_here(spec)


def test_the_remedy_for_a_gpu_of_an_unknown_model_is_a_command_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_run.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(local_run.torch.cuda, "get_device_name", lambda number: "NVIDIA RTX 9090")
    memory = SimpleNamespace(total_memory=24 << 30)
    monkeypatch.setattr(local_run.torch.cuda, "get_device_properties", lambda number: memory)
    monkeypatch.setattr(local_hardware, "measured_here", lambda train, vocab, world: Measured(2e12, 1e-3, 3e11))
    path = tmp_path / "job.yaml"
    path.write_text(OPEN.replace("{ auto: { world: 2 } }", "auto").replace("device: cpu", "device: cuda"))
    with pytest.raises(InvalidParameter) as refused:
        decided_here(read_training_spec(yaml.safe_load(path.read_text())))
    [command] = re.findall(r"`shardyard (.+?)`", refused.value.remedy or "")
    asked = shlex.split(command)
    assert asked[asked.index("--gpu") + 1] == "L4"
    assert run([str(path) if one == "SPEC" else one for one in asked]) == 0
    assert "2 ranks" in capsys.readouterr().out


@pytest.mark.full
def test_a_training_runs_on_the_layout_that_is_chosen_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(OPEN)
    assert run(["run", "--local", "job.yaml", "train.steps=2"]) == 0
    out, err = capfd.readouterr()
    assert "chosen by the layout advisor for 2 × CPU" in err and "predicted step time" in err
    assert "checkpoints/tiny/step-00000002" in out


@pytest.mark.full
def test_a_training_runs_on_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(TRAIN)
    assert run(["run", "--local", "job.yaml", "train.steps=2"]) == 0
    out = capfd.readouterr().out
    assert "checkpoints/tiny/step-00000002" in out and "step-00000003" not in out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("layout: { tensor: 4 }", "train.layout.tensor"),
        ("data: { source: text, files: [no-such/*.txt], seq_len: 32 }", "train.data.files"),
    ],
)
@pytest.mark.parametrize("command", [["run", "--local"], ["verify"]], ids=" ".join)
def test_what_cannot_train_is_refused_before_a_rank_starts(
    command: list[str], change: str, said: str, spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(TRAIN)
    document["train"] |= yaml.safe_load(change)
    spec.write_text(yaml.safe_dump(document))
    assert run([*command, str(spec)]) == 1
    found = capfd.readouterr()
    assert said in found.err and "Traceback" not in found.err + found.out
