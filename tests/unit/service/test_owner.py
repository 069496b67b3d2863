import os
import subprocess
import sys
from dataclasses import replace

from shardyard.service.owner import Owner


def test_this_process_is_alive_and_an_ended_one_is_dead() -> None:
    me = Owner.of_this_process()
    assert Owner.parse(str(me)) == me
    assert not me.certainly_dead
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = Owner.of(child.pid)
        assert not other.certainly_dead
        child.communicate()
    assert other.certainly_dead


def test_a_number_that_came_back_is_another_process() -> None:
    assert replace(Owner.of(os.getpid()), started=1).certainly_dead


def test_of_other_machines_nothing_is_known() -> None:
    assert not Owner("another-machine", 1, 1).certainly_dead


def test_other_texts_are_nobody() -> None:
    assert [Owner.parse(text) for text in ("", "tester", "dispatcher:host:1", "dispatcher:host:x:1")] == [None] * 4
