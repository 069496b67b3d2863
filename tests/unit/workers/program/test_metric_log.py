"""`shardyard.log`: what a program logs reaches its trainer process, and never hurts the program."""

import json
import os
import socket
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.metric_block import MOST_RESTARTS, MetricBlock, columns, packed
from shardyard.workers.program.agents import listening
from shardyard.workers.program.launcher_restarts import LAUNCHERS, RESTARTS
from shardyard.workers.program.report_socket import SOCKET


def logged_by(script: str, name: str | None, **env: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **env} | ({SOCKET: name} if name else {})
    return subprocess.run(
        [sys.executable, "-c", f"import shardyard\n{script}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def received(script: str, **env: str) -> dict[str, list[tuple[int, float | None]]]:
    """All that the trainer process of a program that ran this script has received when the program has ended."""
    found: dict[str, list[tuple[int, float | None]]] = {}

    def take(blocks: list[MetricBlock], _: int) -> None:
        for name, pairs in (column for block in blocks for column in columns(block)):
            found.setdefault(name, []).extend(pairs)

    with listening(take) as agents:
        done = logged_by(script, agents.name, **env)
        assert done.returncode == 0 and not done.stderr, done.stderr
        agents.finish()
    return found


def test_all_that_was_logged_arrives_also_at_the_very_end() -> None:
    found = received("for step in range(500): shardyard.log({'a': step, 'b/c': step / 2}, step=step)")
    assert found == {"a": [(s, float(s)) for s in range(500)], "b/c": [(s, s / 2) for s in range(500)]}


def test_what_a_function_of_atexit_logs_arrives() -> None:
    script = (
        "import atexit; atexit.register(lambda: shardyard.log({'a': 2.0}, step=9)); shardyard.log({'a': 1.0}, step=1)"
    )
    assert received(script) == {"a": [(1, 1.0), (9, 2.0)]}


def test_steps_are_counted_where_none_is_given_and_ranks_have_their_own_curves_if_asked() -> None:
    script = (
        "shardyard.log({'a': 1}); shardyard.log({'a': 2}); shardyard.log({'a': 3}, step=9); shardyard.log({'a': 4})\n"
    )
    script += "shardyard.log({'m': float('nan')}, step=1, per_rank=True)"
    found = received(script, RANK="3")
    assert found == {"a": [(0, 1.0), (1, 2.0), (9, 3.0), (10, 4.0)], "m/rank3": [(1, None)]}


def test_tensors_and_numbers_of_numpy_are_numbers() -> None:
    script = "import numpy, torch; shardyard.log({'t': torch.tensor(0.5), 'n': numpy.float32(2), 'b': True}, step=0)"
    assert received(script) == {"t": [(0, 0.5)], "n": [(0, 2.0)], "b": [(0, 1.0)]}


def test_a_forked_process_sends_its_own_only() -> None:
    script = """
import os
shardyard.log({"parent": 1}, step=0)
if (child := os.fork()) == 0:
    shardyard.log({"child": 2}, step=0)
    import sys
    sys.exit()
os.waitpid(child, 0)
"""
    assert received(script) == {"parent": [(0, 1.0)], "child": [(0, 2.0)]}


def test_a_signal_handler_may_log_within_a_call_that_it_interrupts() -> None:
    """The step's `__index__` runs where the call has the lock."""
    script = """
import os, signal
signal.alarm(20)  # ends a program that waits for itself

class Interrupted:
    def __index__(self):
        os.kill(os.getpid(), signal.SIGUSR1)
        return 5

signal.signal(signal.SIGUSR1, lambda *_: [shardyard.log({"b": 2}, step=9), shardyard.log({"a": 3})])
shardyard.log({"a": 0}, step=2)
shardyard.log({"a": 1}, step=Interrupted())
"""
    found = received(script)
    assert found == {"a": [(2, 0.0), (10, 3.0), (5, 1.0)], "b": [(9, 2.0)]}


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_sends_all_that_it_has_logged(kind: str, tmp_path: Path) -> None:
    script = f"""
import multiprocessing, shardyard

def work():
    shardyard.log({{"child": 2}}, step=0)

if __name__ == "__main__":
    shardyard.log({{"parent": 1}}, step=0)
    child = multiprocessing.get_context("{kind}").Process(target=work)
    child.start()
    child.join()
"""
    (tmp_path / "script.py").write_text(script)
    found = received(f"import runpy; runpy.run_path({str(tmp_path / 'script.py')!r}, run_name='__main__')")
    assert found == {"parent": [(0, 1.0)], "child": [(0, 2.0)]}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("{'a': 'text'}", "TypeError"),
        ("{'a': [1, 2]}", "TypeError"),
        ("{'': 1}", "ValueError"),
        ("{'a\\nb': 1}", "ValueError"),
        ("{'a': 1}, step=-1", "ValueError"),
        ("{'a': 1}, step=2**53", "ValueError"),
    ],
)
def test_what_is_no_number_is_refused_where_it_is_logged(call: str, error: str) -> None:
    assert error in logged_by(f"shardyard.log({call})", None).stderr


@pytest.mark.parametrize(
    ("count", "launchers", "known"), [("2", "1", 2), ("2", "2", 0), ("no", "1", 0), ("1000000", "1", MOST_RESTARTS)]
)
def test_values_come_with_the_count_of_the_only_launcher(count: str, launchers: str, known: int) -> None:
    """Each of several torchruns counts its own restarts."""
    found: list[int] = []
    with listening(lambda _, restarts: found.append(restarts)) as agents:
        assert logged_by("shardyard.log({'a': 1})", agents.name, **{RESTARTS: count, LAUNCHERS: launchers}).stderr == ""
        agents.finish()
    assert found == [known]


def test_outside_a_job_and_without_a_listener_a_program_runs_on() -> None:
    assert logged_by("shardyard.log({'a': 1})", None).returncode == 0
    lost = logged_by("shardyard.log({'a': 1}); print('ran')", "no-such-socket")
    assert (lost.returncode, lost.stdout) == (0, "ran\n") and "1 logged values could not be sent" in lost.stderr


def test_it_needs_neither_torch_nor_pydantic() -> None:
    script = "import sys; shardyard.log({'a': 1}); print(sorted({'torch', 'pydantic', 'numpy', 'httpx2'} & sys.modules.keys()))"
    assert logged_by(script, None).stdout == "[]\n"


def test_a_line_that_is_not_understood_costs_only_itself() -> None:
    found: list[list[MetricBlock]] = []
    good = {"names": ["a"], "steps": [1], "values": packed(array("d", [2.0]))}
    rubbish = [{"names": ["a"]}, {**good, "names": [""]}, {**good, "steps": [-1]}, {**good, "values": "x"}, 3, None]
    with listening(lambda blocks, _: found.append(blocks)) as agents:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("\0" + agents.name)
        hello = json.dumps({"pid": os.getpid(), "metrics": True})
        lines = [hello, json.dumps([good]), "no", "{}", *(json.dumps([one]) for one in rubbish), json.dumps([good]), ""]
        connection.sendall("\n".join(lines).encode())
        connection.close()
        agents.finish()
    wanted = [MetricBlock(("a",), (1,), good["values"])]
    assert [blocks for blocks in found if blocks] == [wanted, wanted]


def test_a_hundred_thousand_values_arrive_whole() -> None:
    """200 metrics of 500 steps, as fast as they can be logged. (`benchmarks/metric_log.py` has what they cost.)"""
    script = "values = {f'm{number}': 0.5 for number in range(200)}\n"
    script += "for step in range(500): shardyard.log(values, step=step)"
    found = received(script)
    assert len(found) == 200 and all([step for step, _ in pairs] == list(range(500)) for pairs in found.values())
