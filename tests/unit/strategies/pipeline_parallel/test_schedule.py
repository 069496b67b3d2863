"""Why messages between stages go over groups of pairs: schedules replayed where what is started over a group runs in order, as on NCCL.

A message begins at an end when what that rank has started before over the same group is done, and is there when it has begun at both. It
takes no time. With a group for each pair of neighbours a step takes as long as if no message waited for another one. With one group for
the pipeline a receive that is posted early holds up later sends. 1F1B is not here: it starts a send and a receive of one pair in one batch,
and waits for both.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import cast

import pytest

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import COMPUTES, Action, Kind, Order, alternating_order

#: The group of a message, of the two ranks at its ends.
GROUPS: dict[str, Callable[[Action, frozenset[int]], object]] = {
    "pipeline": lambda message, ranks: "pipeline",
    "pairs": lambda message, ranks: ranks,
    "free": lambda message, ranks: message,
}
#: How long passes through all stages of a rank take.
PASSES = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


def replay(order: Order, groups: str) -> float:
    """When the last pass ends. What is needed of a micro-batch that the order does not have is there: an earlier step has sent it."""
    owners = {action: rank for rank, actions in enumerate(order) for action in actions}
    stages = {action.stage: rank for action, rank in owners.items()}
    left = [deque(actions) for actions in order]
    clock = [0.0] * len(order)
    queues: dict[tuple[int, object], deque[tuple[float, Action]]] = defaultdict(deque)
    last_done: dict[tuple[int, object], float] = defaultdict(float)
    begun: dict[Action, float] = {}
    done: dict[Action, float] = {}
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(left):
            while actions and needed(actions[0], stages) & owners.keys() <= done.keys():
                action, progress = actions.popleft(), True
                if action.kind in COMPUTES:
                    began = max([clock[rank], *(done.get(need, 0.0) for need in needed(action, stages))])
                    clock[rank] = done[action] = began + PASSES[action.kind] * len(order) / len(stages)
                else:
                    group = GROUPS[groups](action, frozenset({rank, stages[other_end(action).stage]}))
                    queues[rank, group].append((clock[rank], action))
        for place, queue in queues.items():
            if not queue:
                continue
            started, message = queue[0]
            if message not in begun:
                begun[message], progress = max(started, last_done[place]), True
            if other_end(message) in begun:
                queue.popleft()
                last_done[place] = done[message] = max(begun[message], begun[other_end(message)])
                progress = True
    assert not any(left), "ranks wait for each other forever"
    return max(clock)


def other_end(message: Action) -> Action:
    kind, way = message.kind.split("_")
    forth = (kind == "SEND") == (way == "F")
    turned = cast(Kind, f"{'RECV' if kind == 'SEND' else 'SEND'}_{way}")
    return Action(turned, message.stage + (1 if forth else -1), message.microbatch)


def needed(action: Action, stages: dict[int, int]) -> set[Action]:
    """What must be done before a pass: the message from the stage before, or the passes of that stage if it is on the same rank."""
    way = {"F": "F", "B": "B", "I": "B"}.get(action.kind)
    source = action.stage + (-1 if way == "F" else 1)
    if way is None or source not in stages:
        return set()
    if stages[source] != stages[action.stage]:
        return {Action(cast(Kind, f"RECV_{way}"), action.stage, action.microbatch)}
    kinds: tuple[Kind, ...] = ("F",) if way == "F" else ("B", "I")
    return {Action(kind, source, action.microbatch) for kind in kinds}


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"])
@pytest.mark.parametrize("p", [2, 3, 8])
def test_with_groups_of_pairs_no_message_waits_for_another_one(schedule: str, p: int) -> None:
    order = planned_order(Layout.model_validate({"pipeline": p, "schedule": schedule}), 2 * p)
    assert replay(order, "pairs") == pytest.approx(replay(order, "free"))


@pytest.mark.parametrize("p", [2, 3, 8])
def test_ranks_that_end_steps_apart_have_no_bubble_with_groups_of_pairs(p: int) -> None:
    order = alternating_order(p, 64)
    assert replay(order, "pairs") == replay(order, "free") == 64 * 3 + (p - 1) * 2


@pytest.mark.parametrize(
    ("schedule", "one", "pairs"),
    [("interleaved", 86, 58.5), ("zbv", 57.5, 51.5), ("dualpipev", 74.5, 55), ("zb-h1", 57, 55)],
)
def test_over_one_group_messages_wait_for_each_other(schedule: str, one: float, pairs: float) -> None:
    order = planned_order(Layout.model_validate({"pipeline": 8, "schedule": schedule}), 16)
    assert (replay(order, "pipeline"), replay(order, "pairs")) == (one, pairs)
