"""The bubble of a traced step, without a barrier: where passes only sleep it is the simulated one, and schedules have their order."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from harness.sleeping import SLEEPING

from .test_step_trace import events_of, of_kind, run_of

Make = Callable[..., Any]

#: A block sleeps for as long in its forward pass as in either half of its backward pass, and works next to nothing. Its unused weights
#: make all blocks weigh more than the head, so that each stage gets its share of them.
MODULE = (
    SLEEPING
    + """
class Block(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.unused = nn.Parameter(torch.zeros(64, 256))
        self.seconds = seconds

    def forward(self, x):
        scale = Sleep.apply(self.scale, 0.0, self.seconds)
        return Sleep.apply(x, self.seconds, self.seconds) * scale

class Sleeper(nn.Module):
    def __init__(self, layers, seconds):
        super().__init__()
        self.embed = nn.Embedding(256, 4)
        self.blocks = nn.ModuleDict({str(i): Block(seconds) for i in range(layers)})
        self.norm = nn.Identity()
        self.head = nn.Linear(4, 256)

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))
"""
)

PIPELINE, MICROBATCHES = 4, 4
#: What the simulation leaves out, messages and the schedule itself, is a few milliseconds beside each pass, and the more of a small bubble.
SECONDS = {"gpipe": 0.1, "1f1b": 0.1, "interleaved": 0.1, "zbv": 0.15}
#: Of the simulated bubble.
NEAR = 0.1


@pytest.mark.timing
@pytest.mark.timeout(600)
def test_the_bubble_of_a_trace_is_the_simulated_one_and_schedules_have_their_order(root: Path, make_spec: Make) -> None:
    (root / "code").mkdir()
    (root / "code" / "thirds.py").write_text(MODULE)
    measured = {}
    for schedule in SECONDS:
        measured[schedule], simulated = bubbles(schedule, root, make_spec)
        assert measured[schedule] == pytest.approx(simulated, rel=NEAR), schedule
    assert measured["gpipe"] == pytest.approx(measured["1f1b"], rel=NEAR)
    assert min(measured["gpipe"], measured["1f1b"]) > measured["interleaved"] > measured["zbv"], measured


def bubbles(schedule: str, root: Path, make_spec: Make) -> tuple[float, float]:
    """Means over ranks of the step that the machine disturbed least: it makes ranks wait longer, and never less than they must."""
    stages = PIPELINE * (1 if schedule in ("gpipe", "1f1b") else 2)
    args = {"layers": stages, "seconds": SECONDS[schedule]}
    module = {"import": "thirds:Sleeper", "code": str(root / "code"), "args": args}
    layout = {"pipeline": PIPELINE, "schedule": schedule, "micro_batch": 1}
    run = run_of(f"bubble-{schedule}", root, make_spec, layout, model=module, global_batch=MICROBATCHES, steps=4)
    steps: dict[int, list[dict[str, Any]]] = {}
    for events in events_of(run, 2):
        for event in of_kind(events, "trace"):
            steps.setdefault(event["step"], []).append(event["pipeline"])
    found = [
        [fmean(one[name] for one in ranks) for ranks in steps.values()]
        for name in ("bubble_measured", "bubble_simulated")
    ]
    return min(zip(*found, strict=True), key=lambda pair: pair[0] - pair[1])
