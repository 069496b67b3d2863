"""What the environment of a rank's program has, and what of the job's own it keeps."""

import os
import sys
from pathlib import Path

from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.program.environment import AGENT, environment
from shardyard.workers.program.program import Program, argv

COORDS = RankAssignment(
    rank=5, world_size=8, local_rank=1, master_host="10.0.0.1", master_port=4000, local_world_size=4
)


def test_the_jobs_own_variables_win_over_defaults_and_not_over_the_rank() -> None:
    base = {"PYTHONUNBUFFERED": "0", "PYTHONPATH": "/mine", "PATH": "/bin", "RANK": "0", "CUDA_VISIBLE_DEVICES": "3"}
    env = environment(Program("job", ("x",)), COORDS, "name", "2,3", base)
    assert (env["PYTHONUNBUFFERED"], env["RANK"], env["LOCAL_WORLD_SIZE"]) == ("0", "5", "4")
    assert env["PYTHONPATH"].split(os.pathsep) == [str(AGENT), "/mine"]
    assert env["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]
    assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert environment(Program("job", ("x",)), COORDS, "name", None, base)["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_agent_is_the_only_module_in_its_folder() -> None:
    """Everything there can be imported by a user's program by its bare name."""
    assert {path.stem for path in AGENT.glob("*.py")} == {"__init__", "sitecustomize"}


def test_text_is_for_a_shell_and_a_program_goes_to_the_nodes_and_back() -> None:
    assert argv("a && b") == ("/bin/sh", "-c", "a && b") and argv(["a", "b c"]) == ("a", "b c")
    program = Program("job", argv(["python", "x.py"]), attempt=2, cwd="/w", max_restarts=3)
    assert Program.from_json(program.to_json()) == program
