"""What the environment of a rank's program has, and what of the job's own it keeps."""

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.program.environment import AGENT, environment, of_driver, of_node, of_rank, within
from shardyard.workers.program.launcher_restarts import launcher_restarts
from shardyard.workers.program.program import Program, argv, shown
from shardyard.workers.program.report_socket import SOCKET, socket_name

COORDS = RankAssignment(
    rank=5, world_size=8, local_rank=1, master_host="10.0.0.1", master_port=4000, local_world_size=4
)


PROGRAM = Program("job", ("x",))


def test_the_jobs_own_variables_win_over_defaults_and_not_over_the_rank() -> None:
    base = {"PYTHONUNBUFFERED": "0", "PYTHONPATH": "/mine", "PATH": "/bin", "RANK": "0", "CUDA_VISIBLE_DEVICES": "3"}
    env = environment(of_rank(PROGRAM, COORDS), ["name"], "2,3", base)
    assert (env["PYTHONUNBUFFERED"], env["RANK"], env["LOCAL_WORLD_SIZE"]) == ("0", "5", "4")
    assert env["PYTHONPATH"].split(os.pathsep) == [str(AGENT), "/mine"]
    assert env["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]
    assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert environment(of_rank(PROGRAM, COORDS), ["name"], None, base)["CUDA_VISIBLE_DEVICES"] == "3"


def test_all_gpus_of_the_node_are_seen_under_each_name_that_the_rank_has() -> None:
    """On AMD nodes Ray sets that of HIP, too, whose numbers are of the GPUs that an operator's ROCR_VISIBLE_DEVICES leaves."""

    def seen(hip: str) -> dict[str, str]:
        base = {"CUDA_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": hip, "ROCR_VISIBLE_DEVICES": "4,5,6,7"}
        env = environment(of_rank(PROGRAM, COORDS), ["name"], "2,3", base)
        return {name.removesuffix("_VISIBLE_DEVICES"): env[name] for name in base}

    assert seen("3") == {"CUDA": "2,3", "HIP": "2,3", "ROCR": "4,5,6,7"}
    assert seen("0,1") == {"CUDA": "2,3", "HIP": "0,1", "ROCR": "4,5,6,7"}, "it is not Ray's"
    assert "HIP_VISIBLE_DEVICES" not in environment({}, ["name"], "2,3", {"CUDA_VISIBLE_DEVICES": "3"})


def test_a_line_is_one_write_so_that_ranks_that_share_their_output_do_not_mix_theirs() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # which has a message for each write
    env = environment({}, [""], None, os.environ)
    script = "import sys; print('a', 'b'); print('c', end=''); print('d', 'e', file=sys.stderr)"
    with ours, theirs:
        subprocess.run([sys.executable, "-c", script], env=env, stdout=theirs, stderr=theirs, check=True, timeout=60)
        assert {ours.recv(100) for _ in range(3)} == {b"a b\n", b"d e\n", b"c"}


def test_a_virtual_environment_takes_the_place_of_this_one() -> None:
    """Commands that it lacks are not this one's, which would run with this one's packages."""
    ours = str(Path(sys.executable).parent)
    env = within(Path("/env"), {"PATH": os.pathsep.join([ours, "/bin"]), "PYTHONHOME": "/home", "LR": "1"})
    assert env == {"PATH": os.pathsep.join(["/env/bin", "/bin"]), "VIRTUAL_ENV": "/env", "LR": "1"}


def test_an_environment_of_conda_is_no_virtual_one() -> None:
    env = within(Path("/env"), {"PATH": "/bin", "PYTHONHOME": "/home", "VIRTUAL_ENV": "/ours"}, conda=True)
    paths = {"PATH": os.pathsep.join(["/env/bin", "/bin"])}
    assert env == paths | {"CONDA_PREFIX": "/env", "CONDA_DEFAULT_ENV": "/env"}


def test_the_agent_is_the_only_module_in_its_folder() -> None:
    """Everything there can be imported by a user's program by its bare name."""
    assert {path.stem for path in AGENT.glob("*.py")} == {"__init__", "sitecustomize"}


def test_what_runs_in_a_programs_python_is_written_as_for_python_3_8() -> None:
    """The agent, and what it loads by its path. Annotations are not evaluated."""
    agent = AGENT / "sitecustomize.py"
    loaded = re.findall(r"""_loaded\("(\w+)"\)""", agent.read_text())
    assert {"gloo_threads", "recorder_dumps", "step_recorder", "thread_stacks", "torch_recordings"} <= {*loaded}
    for path in (agent, *(AGENT.parents[1] / f"{name}.py" for name in loaded)):
        tree = ast.parse(path.read_text(), str(path), feature_version=(3, 8))
        annotated = any(isinstance(node, ast.AnnAssign | ast.arg) and node.annotation for node in ast.walk(tree))
        later = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        assert later or not annotated, path


def test_text_is_for_a_shell_and_a_program_goes_to_the_nodes_and_back() -> None:
    assert argv(["a", "b c"]) == shown(["a", "b c"]) == ("a", "b c") and shown("a && b") == ("bash", "-c", "a && b")
    program = Program("job", argv(["python", "x.py"]), attempt=2, cwd="/w", max_restarts=3)
    assert Program.from_json(program.to_json()) == program


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_text_is_run_by_bash_and_by_sh_where_there_is_none(tmp_path: Path) -> None:
    """With what `dash` refuses, with quotes of its own, and as the same process: its signals are those of the rank."""
    (tmp_path / "activate").write_text("GREETING='it is \"me\"'\n")
    text = f"""source {tmp_path}/activate; [[ x == x* ]] && echo "$GREETING $BASH_VERSION|$$"; exit 7"""
    done = subprocess.Popen(argv(text), stdout=subprocess.PIPE, text=True)
    printed = done.communicate()[0]
    assert done.returncode == 7 and printed.startswith('it is "me" ') and printed.endswith(f"|{done.pid}\n"), printed
    assert not printed.startswith('it is "me" |')
    without = {"PATH": str(tmp_path)}
    alone = subprocess.run(argv("echo $0 $PATH; exit 3"), env=without, capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stdout, alone.stderr) == (3, f"/bin/sh {tmp_path}\n", "")


def test_one_process_of_a_node_gets_what_torchrun_asks_for_and_no_rank() -> None:
    coords = RankAssignment(
        rank=4,
        world_size=8,
        local_rank=0,
        local_world_size=4,
        node_rank=1,
        nodes=2,
        master_host="10.0.0.1",
        master_port=1,
    )
    env = environment(of_node(PROGRAM, coords, 4321), ["a", "b"], None, {})
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "4321",
    }
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"} & env.keys()


def test_a_driver_of_ray_has_no_rank() -> None:
    assert of_driver(PROGRAM, COORDS) == {
        "SHARDYARD_JOB": "job",
        "SHARDYARD_ATTEMPT": "1",
        "SHARDYARD_RESTART_COUNT": "0",
    }


def test_a_process_reports_to_the_socket_of_its_local_rank() -> None:
    assert socket_name({}) is None and socket_name({SOCKET: "a"}) == "a"
    assert socket_name({SOCKET: "a", "LOCAL_RANK": "3"}) == "a"
    assert [socket_name({SOCKET: "a,b", "LOCAL_RANK": rank}) for rank in ("0", "1", "2", "x")] == ["a", "b", "a", "a"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_starts_of_the_gang_are_no_restarts_by_a_launcher(nodes: int) -> None:
    """A torchrun in the command replaces the variables, and counts by itself."""
    own = of_rank(PROGRAM, replace(COORDS, generation=3, nodes=nodes))
    assert own["TORCHELASTIC_RESTART_COUNT"] == "2" and launcher_restarts(own) == 0
    nested = own | {"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "1"}
    assert [launcher_restarts(nested | {"TORCHELASTIC_RESTART_COUNT": count}) for count in ("0", "1")] == [0, 1]
    assert launcher_restarts(nested | {"GROUP_WORLD_SIZE": "2"}) == 0
