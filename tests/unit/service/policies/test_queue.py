from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.policies import pool
from shardyard.service.policies.queue import (
    DEVICES,
    Device,
    DeviceChoice,
    Inventory,
    Machine,
    Start,
    Wait,
    Waiting,
    Whole,
    decide,
    impossible,
    machine,
)


def node(
    cpu: int = 0, cuda: int = 0, cpu_free: int | None = None, cuda_free: int | None = None, cordoned: bool = False
) -> Machine:
    free: dict[Device, int] = {
        "cpu": cpu if cpu_free is None else cpu_free,
        "cuda": cuda if cuda_free is None else cuda_free,
    }
    return Machine({"cpu": cpu, "cuda": cuda}, free, cordoned)


def job(name: str, world_size: int, tensor: int = 1, wanted: DeviceChoice = "cpu") -> Waiting:
    return Waiting(name, world_size, tensor, wanted)


def test_the_first_that_must_wait_holds_up_those_behind_it() -> None:
    queue = [job("a", 4), job("b", 8), job("c", 1)]
    a, b, c = decide(queue, [node(cpu=8)], {}, None)
    assert a == Start("a", "cpu")
    assert b == Wait("b", "waiting_for_devices", "Needs 8 ranks, 4 of 8 CPU ranks are free; waiting for 4 more.")
    assert isinstance(c, Wait) and c.reason == "waiting_for_turn"


def test_what_other_applications_have_hides_no_gang_that_is_being_built() -> None:
    """Of 12 GPUs they have four; a gang of four is placed, and not listed yet."""
    shared = replace(node(cuda=12, cuda_free=8), others={"cuda": 4})
    assert decide([job("a", 8, 1, "cuda")], [shared], {"cuda": 4}, None) == [
        Wait("a", "waiting_for_devices", "Needs 8 ranks, 4 of 12 GPUs are free; waiting for 4 more.")
    ]
    assert decide([job("a", 4, 1, "cuda")], [shared], {"cuda": 4}, None) == [Start("a", "cuda")]
    listed = replace(shared, free={"cpu": 0, "cuda": 4})
    assert decide([job("a", 4, 1, "cuda")], [listed], {"cuda": 4}, None) == [Start("a", "cuda")]


def test_equal_jobs_that_wait_are_packed_onto_the_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred of them are judged in each turn of the dispatcher, on a thousand nodes or more."""
    usual, asked = pool.placed, 0

    def placed(*given: Any) -> list[int] | None:
        nonlocal asked
        asked += 1
        return usual(*given)

    monkeypatch.setattr(pool, "placed", placed)
    machines = [node(cuda=8, cuda_free=0) for _ in range(50)]
    found = decide([job(f"j{number}", 64, 8, "cuda") for number in range(200)], machines, {}, None)
    assert {type(one) for one in found} == {Wait} and len(found) == 200
    assert asked < 20


def test_devices_of_another_kind_are_another_queue() -> None:
    queue = [job("a", 8, wanted="cuda"), job("b", 2)]
    a, b = decide(queue, [node(cpu=4, cuda=8, cuda_free=1)], {}, None)
    assert isinstance(a, Wait) and b == Start("b", "cpu")


def test_a_job_beyond_the_cluster_waits_for_its_growth_and_holds_up_no_other() -> None:
    queue = [job("a", 8), job("b", 1)]
    a, b = decide(queue, [node(cpu=4)], {}, 16)
    assert a == Wait(
        "a", "waiting_for_nodes", "Needs 8 ranks, the cluster has 4 CPU ranks and may grow to 16; waiting for 4 more."
    )
    assert b == Start("b", "cpu"), "who adds the nodes may take days"
    a, b = decide([job("a", 8, tensor=8), job("b", 1)], [node(cpu=4), node(cpu=4)], {}, 16)
    needs = "Needs 8 ranks in tensor groups of 8, the nodes in use have room for 0; see `shardyard nodes`."
    assert (a, b) == (Wait("a", "waiting_for_nodes", needs), Start("b", "cpu"))
    a, b = decide(queue, [node(cpu=4, cpu_free=2), node(cpu=4)], {}, 16)
    assert isinstance(a, Wait) and isinstance(b, Wait) and b.reason == "waiting_for_turn", "it has grown"
    a, b = decide(queue, [node(cpu=4)], {}, None)
    assert a == Wait("a", "too_many_ranks", "Needs 8 ranks; the cluster has 4 CPU ranks.")
    assert b == Start("b", "cpu")


def test_a_gang_that_is_being_built_holds_its_ranks_already() -> None:
    (decision,) = decide([job("a", 4)], [node(cpu=8)], {"cpu": 6}, None)
    assert isinstance(decision, Wait)
    (decision,) = decide([job("a", 2)], [node(cpu=8)], {"cpu": 6, "cuda": 8}, None)
    assert decision == Start("a", "cpu")


def test_what_others_use_on_the_cluster_counts() -> None:
    (decision,) = decide([job("a", 4)], [node(cpu=8, cpu_free=3)], {}, None)
    assert isinstance(decision, Wait)


def test_a_tensor_group_stands_on_one_node() -> None:
    nodes = [node(cpu=6), node(cpu=6)]
    assert decide([job("a", 8, tensor=4)], nodes, {}, None) == [Start("a", "cpu")]
    (wait,) = decide([job("a", 12, tensor=4)], nodes, {}, None)
    assert isinstance(wait, Wait)
    assert wait.reason == "too_many_ranks"
    assert wait.message == "Needs 12 ranks in tensor groups of 4; the cluster's nodes have room for 2."
    (wait,) = decide([job("a", 8, tensor=4)], [node(cpu=6), node(cpu=6, cpu_free=2), node(cpu=2)], {}, None)
    assert isinstance(wait, Wait) and wait.reason == "waiting_for_devices"
    assert wait.message == "Needs 8 ranks in tensor groups of 4, no nodes have 2 groups of 4 free CPU ranks."
    assert impossible(job("a", 8, tensor=8), Inventory(nodes)) is not None
    assert impossible(job("a", 8, tensor=8), Inventory(nodes, 64)) is None


def test_cordoned_nodes_count_for_no_new_gang() -> None:
    nodes = [node(cpu=4), node(cpu=4, cordoned=True)]
    large, small = decide([job("a", 8), job("b", 4)], nodes, {}, None)
    assert isinstance(large, Wait) and large.reason == "waiting_for_nodes"
    assert large.message == (
        "Needs 8 ranks, 4 of 8 CPU ranks are on nodes in use, the others on cordoned ones; see `shardyard nodes`."
    )
    assert small == Start("b", "cpu"), "a cordon must not stop those who have room"
    assert impossible(job("a", 8), Inventory(nodes)) is None
    assert isinstance(decide([job("a", 9)], nodes, {}, None)[0], Wait)


def test_what_runs_on_a_cordoned_node_takes_no_room_elsewhere() -> None:
    nodes = [node(cpu=4), node(cpu=4, cpu_free=0, cordoned=True)]
    assert decide([job("a", 4)], nodes, {"cpu": 4}, None) == [Start("a", "cpu")]
    being_built = [node(cpu=4), node(cpu=4, cordoned=True)]
    assert isinstance(decide([job("a", 1)], being_built, {"cpu": 4}, None)[0], Wait)


def test_a_spare_holds_a_device_on_any_node() -> None:
    spared = Waiting("a", 8, 4, "cpu", spares=2)
    nodes = [node(cpu=5), node(cpu=5)]
    assert decide([spared, job("b", 1)], nodes, {}, None)[0] == Start("a", "cpu")
    assert isinstance(decide([spared, job("b", 1)], nodes, {}, None)[1], Wait)
    (wait,) = decide([spared], [node(cpu=4), node(cpu=5)], {}, None)
    assert wait == Wait("a", "too_many_ranks", "Needs 8 ranks and 2 spares; the cluster has 9 CPU ranks.")
    assert impossible(spared, Inventory(nodes)) is None


def test_nothing_is_refused_while_no_node_is_known() -> None:
    (wait,) = decide([job("a", 4)], [], {}, None)
    assert wait == Wait("a", "waiting_for_nodes", "Needs 4 ranks, the cluster has 0 CPU ranks; waiting for 4 more.")


@pytest.mark.parametrize(
    ("wanted", "cpu", "cuda", "device"),
    [
        ("auto", 8, 4, "cuda"),
        ("auto", 8, 2, "cpu"),
        ("auto", 2, 2, "cuda"),
        ("auto", 2, 0, "cpu"),
        ("cpu", 1, 8, "cpu"),
    ],
)
def test_auto_is_gpus_where_there_are_enough(wanted: DeviceChoice, cpu: int, cuda: int, device: Device) -> None:
    (decision,) = decide([job("a", 4, wanted=wanted)], [node(cpu=cpu, cuda=cuda)], {}, None)
    if isinstance(decision, Start):
        assert decision.device == device
    else:
        assert decision.message.endswith({"cpu": "CPU ranks.", "cuda": "GPUs."}[device])


def test_a_machine_in_ranks() -> None:
    assert machine(2.0, 0.75, 1.0, 0.0, 4) == node(cpu=8, cuda=1, cpu_free=5)
    assert machine(2.5, 0.1 + 0.2 + 0.7, 0.0, 0.0, 4) == node(cpu=8, cpu_free=4)
    assert machine(1.0, 3.0, 0.0, 0.0, 4) == node(cpu=4, cpu_free=0)


sizes = st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 4), st.integers(0, 2))


@given(
    st.lists(sizes, max_size=8),
    st.lists(st.integers(0, 9), max_size=4),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
)
def test_never_more_is_given_than_is_free(
    jobs: list[tuple[int, int, int]], free: list[int], held: int, cordoned: int | None
) -> None:
    queue = [Waiting(str(i), t * groups, t, "cpu", spares) for i, (t, groups, spares) in enumerate(jobs)]
    away = [] if cordoned is None else [node(cpu=9, cpu_free=cordoned, cordoned=True)]
    nodes = [node(cpu=9, cpu_free=f) for f in free] + away
    decisions = decide(queue, nodes, {"cpu": held}, None)
    started = [waiting for waiting, each in zip(queue, decisions, strict=True) if isinstance(each, Start)]
    assert [each.id for each in decisions] == [waiting.id for waiting in queue]
    room = 9 * len(nodes) - held - (cordoned or 0)
    assert sum(waiting.devices for waiting in started) <= max(0, min(sum(free), room))
    blocking = ("waiting_for_devices", "waiting_for_turn")
    waits = [i for i, each in enumerate(decisions) if isinstance(each, Wait) and each.reason in blocking]
    assert all(isinstance(decisions[i], Wait) for i in range(min(waits, default=len(queue)), len(queue)))


def elastic(name: str, *sizes: int, least: int = 1, tensor: int = 1, wanted: DeviceChoice = "cpu") -> Waiting:
    return Waiting(name, sizes[0], tensor, wanted, others=sizes[1:], least=least)


def test_an_elastic_job_takes_the_largest_size_for_which_there_is_room() -> None:
    nodes = [node(cpu=4, cpu_free=3), node(cpu=4, cpu_free=1)]
    assert decide([elastic("a", 8, 4, 2, 1)], nodes, {}, None) == [Start("a", "cpu", 4)]
    assert decide([elastic("a", 8, 4, 2, tensor=2, least=2)], nodes, {}, None) == [Start("a", "cpu", 2)]
    first, second = decide([elastic("a", 4, 2), elastic("b", 4, 2, 1)], [node(cpu=5)], {}, None)
    assert (first, second) == (Start("a", "cpu", 4), Start("b", "cpu", 1))


def test_an_elastic_job_that_is_patient_waits_for_its_own_size_and_holds_its_place() -> None:
    a, b = decide([elastic("a", 4), job("b", 1)], [node(cpu=4, cpu_free=2)], {}, None)
    assert isinstance(a, Wait) and a.reason == "waiting_for_devices"
    assert isinstance(b, Wait) and b.reason == "waiting_for_turn"


def test_an_elastic_job_that_the_cluster_is_too_small_for_is_none_that_can_never_run() -> None:
    a, b = decide([elastic("a", 8), job("b", 1)], [node(cpu=4)], {}, None)
    assert a == Wait("a", "waiting_for_nodes", "Needs 8 ranks; the cluster has 4 CPU ranks.")
    assert b == Start("b", "cpu")
    (never,) = decide([elastic("a", 8, least=6)], [node(cpu=4)], {}, None)
    assert isinstance(never, Wait) and never.reason == "too_many_ranks"
    (smaller,) = decide([elastic("a", 8, 4, 2)], [node(cpu=4)], {}, None)
    assert smaller == Start("a", "cpu", 4)


def test_an_elastic_job_stays_on_the_devices_on_which_its_smallest_form_runs() -> None:
    nodes = [node(cpu=16, cuda=2)]
    assert decide([elastic("a", 4, 2, 1, wanted="auto")], nodes, {}, None) == [Start("a", "cuda", 2)]


FLEET: Whole = {"cpu": {"": [8, 8]}, "cuda": {"": [8, 8]}}


def test_while_a_node_is_away_auto_waits_for_its_gpus_and_holds_up_no_other() -> None:
    """Of two nodes with eight GPUs one is being replaced."""
    queue = [job("a", 16, wanted="auto"), job("b", 16, wanted="cuda"), job("c", 8, wanted="auto")]
    a, b, c = decide(queue, [node(cpu=64, cuda=8)], {}, None, FLEET)
    away = "8 of 16 GPUs are on nodes in use, the others on nodes that are away; see `shardyard nodes`."
    assert a == Wait("a", "waiting_for_nodes", f"Needs 16 ranks, {away}")
    assert b == Wait("b", "waiting_for_nodes", f"Needs 16 ranks, {away}")
    assert c == Start("c", "cuda")
    assert impossible(queue[1], Inventory([node(cpu=64, cuda=8)], None, FLEET)) is None
    never = impossible(job("d", 17, wanted="cuda"), Inventory([node(cpu=64, cuda=8)], None, FLEET))
    assert never == "Needs 17 ranks; the cluster has 16 GPUs."


def test_nodes_that_are_away_and_cordoned_ones_are_distinguished() -> None:
    whole: Whole = {"cuda": {"": [8, 8, 8]}}
    (wait,) = decide([job("a", 20, wanted="cuda")], [node(cuda=8), node(cuda=8, cordoned=True)], {}, None, whole)
    assert isinstance(wait, Wait) and wait.reason == "waiting_for_nodes"
    assert "8 of 24 GPUs are on nodes in use, 8 on cordoned ones, 8 on nodes that are away" in wait.message
    (wait,) = decide([job("a", 8, tensor=8, wanted="cuda")], [node(cuda=4), node(cuda=4)], {}, None, whole)
    assert isinstance(wait, Wait) and wait.reason == "waiting_for_nodes"
    assert wait.message == (
        "Needs 8 ranks in tensor groups of 8, the nodes in use have room for 0; see `shardyard nodes`."
    )


def test_a_cluster_that_has_grown_beyond_its_capacity_is_used() -> None:
    assert decide([job("a", 24, wanted="auto")], [node(cuda=8)] * 3, {}, None, FLEET) == [Start("a", "cuda")]


def test_where_the_whole_cluster_lacks_gpus_auto_takes_cpus_at_once() -> None:
    queue = [job("a", 16, tensor=4, wanted="auto")]
    whole: Whole = {"cpu": {"": [64]}, "cuda": {"": [6, 6, 6]}}
    assert decide(queue, [node(cpu=64, cuda=6)], {}, None, whole) == [Start("a", "cpu")]


@st.composite
def partial_fleets(draw: st.DrawFn) -> tuple[list[Machine], list[Machine], Waiting]:
    """A whole fleet, what lives of it now, partly cordoned and partly used, and a job."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0, 2, 4, 8])), min_size=1, max_size=4))
    full = [node(cpu=cpu, cuda=cuda) for cpu, cuda in sizes]
    now = []
    for one in full:
        if draw(st.booleans()):
            free: dict[Device, int] = {kind: draw(st.integers(0, most)) for kind, most in one.capacity.items()}
            now.append(Machine(one.capacity, free, draw(st.booleans())))
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    world_size, spares = tensor * draw(st.integers(1, 6)), draw(st.integers(0, 2))
    return full, now, Waiting("a", world_size, tensor, draw(st.sampled_from(["auto", "cpu", "cuda"])), spares)


@given(partial_fleets())
def test_a_partial_fleet_decides_as_the_whole_one(drawn: tuple[list[Machine], list[Machine], Waiting]) -> None:
    """Never CPUs where the whole fleet's GPUs suffice, and never a refusal of what the whole fleet can run."""
    full, now, waiting = drawn
    whole: Whole = {device: {"": [one.capacity[device] for one in full]} for device in DEVICES}
    (when_whole,) = decide([waiting], full, {}, None)
    (decision,) = decide([waiting], now, {}, None, whole)
    refused = impossible(waiting, Inventory(now, None, whole))
    if isinstance(when_whole, Start):
        assert refused is None
        if isinstance(decision, Start):
            assert decision.device == when_whole.device
        else:
            assert decision.reason in ("waiting_for_nodes", "waiting_for_devices") and decision.message
    elif any(one.capacity[device] for one in full for device in one.capacity):
        assert when_whole.reason == "too_many_ranks" and refused == when_whole.message
        assert isinstance(decision, Wait) and decision.reason == "too_many_ranks"
