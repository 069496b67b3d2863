"""Typed calls to a supervisor's actor. With real gangs: tests/integration/workers/supervisor/test_ray_cluster.py."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shardyard.service.cluster.interface import Pull, UserOrder
from shardyard.service.cluster.supervisor_handle import SupervisorHandle
from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.fault_request import Fault
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.messages.secret import Secret
from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.supervisor.actor import Supervisor

Call = Callable[[SupervisorHandle], Awaitable[Any]]


class Actor:
    """Ray's handle of a supervisor: it has the methods of the class, takes their arguments alone, and notes the calls."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        signature = inspect.signature(getattr(Supervisor, name))

        async def remote(*arguments: Any) -> Any:
            given = signature.bind(self, *arguments).arguments
            self.calls.append((name, {key: value for key, value in given.items() if key != "self"}))
            return self.answer

        return type("Method", (), {"remote": staticmethod(remote)})


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (lambda supervisor: supervisor.begin(), "begin", {}),
        (lambda supervisor: supervisor.stop("cancel"), "stop", {"reason": "cancel"}),
        (
            lambda supervisor: supervisor.provide_secrets([Secret("HF_TOKEN", "hf-secret")]),
            "provide_secrets",
            {"values": [Secret("HF_TOKEN", "hf-secret").to_json()]},
        ),
        (lambda supervisor: supervisor.close(), "close", {}),
    ],
)
async def test_a_call_is_one_of_the_supervisors_methods(call: Call, name: str, arguments: dict[str, Any]) -> None:
    actor = Actor()
    assert await call(SupervisorHandle(actor)) is None
    assert actor.calls == [(name, arguments)]


async def test_a_pull_is_read_into_a_value() -> None:
    event = {"seq": 4, "ts": 1.0, "kind": "state", "data": {}}
    actor = Actor({"version": 3, "events": [event], "last": 9, "misses_secrets": True})
    assert await SupervisorHandle(actor).pull(3, 0.5) == Pull([event], 9, 3, misses_secrets=True)
    assert actor.calls == [("pull", {"after": 3, "wait_s": 0.5})]


async def test_a_pull_reports_by_how_much_the_clock_of_the_gangs_node_is_behind() -> None:
    assert (await SupervisorHandle(Actor({"events": [], "last": 0, "now": 1000.0})).pull(0, 0.0)).behind_s > 1e9


async def test_a_pull_of_the_first_version_has_neither_a_version_nor_secrets() -> None:
    assert await SupervisorHandle(Actor({"events": [], "last": 0})).pull(0, 0.0) == Pull([], 0, 0)


@pytest.mark.parametrize(
    ("order", "name"),
    [
        (Fault("fault-1", "kill-rank", 0), "inject_fault"),
        (Trace("trace-1", 5), "trace"),
        (Profile("profile-1", "cpu", 0, 5, "/storage", 1 << 20), "profile"),
        (Exec("exec-1", 0, ("ls",), 60), "execute"),
    ],
)
async def test_an_order_goes_to_the_method_of_its_kind(order: UserOrder, name: str) -> None:
    actor = Actor()
    assert await SupervisorHandle(actor).deliver(order)
    ((called, arguments),) = actor.calls
    assert (called, list(arguments.values())) == (name, [order.to_json()])
