"""A command beside a rank crosses processes as JSON and back."""

import json

import pytest

from shardyard.workers.messages.exec_request import Exec, ExecEnd


def test_a_command_is_read_as_it_was_written() -> None:
    command = Exec("exec-1", 3, ("ls", "-l", "a b"), 60)
    assert Exec.from_json(json.loads(json.dumps(command.to_json()))) == command


@pytest.mark.parametrize("end", [ExecEnd("exit status 3", 3, 17, 5.5), ExecEnd("The rank ended first.")])
def test_an_end_is_read_as_it_was_written(end: ExecEnd) -> None:
    assert ExecEnd.from_json(json.loads(json.dumps(end.to_json()))) == end


def test_what_lacks_a_field_is_no_command() -> None:
    with pytest.raises(ValueError, match="seconds"):
        Exec.from_json({"id": "exec-1", "rank": 3, "command": ["ls"]})
