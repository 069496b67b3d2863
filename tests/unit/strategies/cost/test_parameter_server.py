"""From numbers alone; `tests/parity/test_cost_inputs.py` compares the formulas with what ranks hold and send."""

from typing import Any

import pytest

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.parameter_server import (
    copies_bytes,
    keys,
    message_bytes,
    most_elements,
    pushed,
    state_bytes,
)
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.cost.snapshots import fullest_bytes, rank_bytes
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.spec import TrainSpec

MODEL = {"layers": 8, "dim": 512, "heads": 8, "kv_heads": 8, "hidden": 1536, "vocab": 8000}


def setting(workers: int, servers: int, mode: str = "sync", **train: Any) -> Setting:
    layout = {"data": workers, "parameter_server": {"servers": servers, "mode": mode}}
    spec = {"steps": 1, "global_batch": 4 * workers, "layout": layout, "precision": "bf16", "model": MODEL, **train}
    found = setting_of(TrainSpec.model_validate(spec), 8000, "cpu")
    assert isinstance(found, Setting)
    return found


def test_what_a_worker_sends_does_not_depend_on_the_number_of_workers_or_servers() -> None:
    sent = {traffic(setting(n, k)).moved["parameter_server", "send"].elements for n in (1, 4) for k in (1, 3)}
    assert sent == {pushed(setting(2, 2))}


def test_servers_hold_all_and_about_equally_much() -> None:
    held = [sum(sizes) for sizes in keys(setting(4, 3))]
    assert sum(held) == pushed(setting(4, 3))
    assert max(held) == most_elements(setting(4, 3)) <= 1.1 * pushed(setting(4, 3)) / 3


def test_state_is_12_bytes_per_parameter_and_a_counter_each() -> None:
    assert state_bytes(setting(2, 1), [100, 50]) == 12 * 150 + 4 * 2
    assert state_bytes(setting(2, 1, optimizer={"name": "sgd"}), [100]) == 8 * 100


def test_messages_of_every_worker_are_in_transit() -> None:
    embedding = 8000 * 512 * 4  # bytes; the largest message
    found = setting(4, 2)
    assert message_bytes(found) == 4 * 2 * embedding
    assert message_bytes(setting(4, 64)) == 4 * embedding, "no more than a server's parameters"


def test_the_fullest_rank_is_a_server_where_many_workers_have_few_tokens() -> None:
    few = {"data": {"seq_len": 16}}
    found = setting(8, 1, **few)
    kinds = plan(found).by_kind
    assert set(kinds) == {"optimizer", "gradients", "buffers"}
    assert kinds["optimizer"] == state_bytes(found, keys(found)[0])
    assert kinds["gradients"] == 4 * most_elements(found)
    assert "parameters" in plan(setting(2, 8, data={"seq_len": 2048})).by_kind, "a worker with its activations"


def test_a_worker_with_a_clock_of_its_own_also_sends_two_requests_to_each_server() -> None:
    moved = traffic(setting(4, 3, "async")).moved["parameter_server", "send"]
    plain = traffic(setting(4, 3)).moved["parameter_server", "send"]
    assert (moved.elements - plain.elements, moved.bytes - plain.bytes) == (2 * 3 * 9, 2 * 3 * 9 * 8)
    assert moved.words == "Ψ to the servers + requests" and plain.words == "Ψ to the servers"


def test_its_servers_hold_gradients_and_a_copy_of_their_values_for_each_worker() -> None:
    """Copies have 2 bytes per element, and gradients 4 or 2."""
    found = setting(8, 1, "async", data={"seq_len": 16})
    assert copies_bytes(found) == (8 * 2 + 7 * 4) * most_elements(found)
    assert plan(found).by_kind["buffers"] == copies_bytes(found)
    assert plan(found).by_kind["gradients"] == 4 * most_elements(found)
    narrow = setting(8, 1, "async", precision={"compute": "bf16", "gradients": "compute"})
    assert copies_bytes(narrow) == (8 * 2 + 8 * 2) * most_elements(narrow)


@pytest.mark.parametrize("servers", [1, 2])
def test_only_servers_have_tensors_in_their_snapshots(servers: int) -> None:
    found = setting(2, servers)
    assert rank_bytes(found)[:2] == [0, 0]
    assert sum(rank_bytes(found)) == 2 * 12 * pushed(found)
    assert max(rank_bytes(found)) == fullest_bytes(found, 0, 0)
