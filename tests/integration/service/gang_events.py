"""Events as a gang sends them, and a node that it may run on."""

from typing import Any

from harness.events import whole_event

from shardyard.service.policies.limits import Rules
from shardyard.service.policies.retry import Backoff

NODE = {"id": "n1", "host": "h1", "alive": True, "cpu": 2.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}


AT_ONCE = Rules(Backoff(1e-9, 1e-9))


Events = list[dict[str, Any]]


def event_batch(*said: tuple[str, dict[str, Any]], first: int = 1) -> Events:
    return [
        {"seq": first + i, "ts": 1000.0 + i, "kind": kind, "data": whole_event(kind, data)}
        for i, (kind, data) in enumerate(said)
    ]


def state(name: str, reason: str | None = None) -> tuple[str, dict[str, Any]]:
    return "state", {"state": name, "reason": reason, "message": None}


def step(number: int, loss: float = 1.0) -> tuple[str, dict[str, Any]]:
    return "step", {"step": number, "loss": loss, "tokens": number, "step_s": 0.5, "tokens_per_s": 2.0}


def lines(first: int, *text: str, rank: int = 0) -> tuple[str, dict[str, Any]]:
    return "log", {"rank": rank, "stream": "stdout", "first": first, "lines": list(text)}
