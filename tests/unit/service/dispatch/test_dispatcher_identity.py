import subprocess
import sys
from dataclasses import replace

from shardyard.service.dispatch.dispatcher_identity import Owner


def test_this_process_is_alive_and_an_ended_one_is_dead() -> None:
    me = Owner.of_this_process()
    assert Owner.parse(str(me)) == me
    assert not me.is_dead
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = Owner.of(child.pid)
        assert not other.is_dead
        child.communicate()
    assert other.is_dead


def test_two_dispatchers_of_one_process_are_two() -> None:
    assert str(Owner.of_this_process()) != str(Owner.of_this_process())


def test_a_number_that_came_back_is_another_process() -> None:
    assert replace(Owner.of_this_process(), started=1).is_dead


def test_of_other_places_nothing_is_known() -> None:
    """After another boot or in another PID namespace, whatever the host is called."""
    gone = replace(Owner.of_this_process(), pid=2**22 + 1)
    assert gone.is_dead
    assert not replace(gone, place="0" * 12).is_dead
    assert not replace(gone, place="").is_dead


def test_other_texts_name_no_owner() -> None:
    """Those of earlier versions, too: their processes are not known to be dead."""
    texts = ("", "tester", "dispatcher:host:1", "dispatcher:host:1:1", "dispatcher:host:a:b:x:1", "other:host:a:b:1:1")
    assert [Owner.parse(text) for text in texts] == [None] * len(texts)
