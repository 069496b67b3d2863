import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.queue import Device, Machine, Start, Wait, Waiting, Wanted, decide, impossible, machine, resolve


def node(
    cpu: int = 0, cuda: int = 0, cpu_free: int | None = None, cuda_free: int | None = None, cordoned: bool = False
) -> Machine:
    free: dict[Device, int] = {
        "cpu": cpu if cpu_free is None else cpu_free,
        "cuda": cuda if cuda_free is None else cuda_free,
    }
    return Machine({"cpu": cpu, "cuda": cuda}, free, cordoned)


def job(name: str, world_size: int, tensor: int = 1, wanted: Wanted = "cpu") -> Waiting:
    return Waiting(name, world_size, tensor, wanted)


def test_the_first_that_must_wait_holds_up_those_behind_it() -> None:
    queue = [job("a", 4), job("b", 8), job("c", 1)]
    a, b, c = decide(queue, [node(cpu=8)], {}, None)
    assert a == Start("a", "cpu")
    assert b == Wait("b", "waiting_for_devices", "Needs 8 ranks, 4 of 8 CPU ranks are free; waiting for 4 more.")
    assert isinstance(c, Wait) and c.reason == "waiting_for_turn"


def test_devices_of_another_kind_are_another_queue() -> None:
    queue = [job("a", 8, wanted="cuda"), job("b", 2)]
    a, b = decide(queue, [node(cpu=4, cuda=8, cuda_free=1)], {}, None)
    assert isinstance(a, Wait) and b == Start("b", "cpu")


def test_a_job_beyond_the_cluster_waits_for_its_growth_or_holds_up_nobody() -> None:
    queue = [job("a", 8), job("b", 1)]
    a, b = decide(queue, [node(cpu=4)], {}, 16)
    assert a == Wait(
        "a", "waiting_for_nodes", "Needs 8 ranks, the cluster has 4 CPU ranks and may grow to 16; waiting for 4 more."
    )
    assert isinstance(b, Wait)
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
    assert wait.message == "Needs 12 ranks in tensor groups of 4, no nodes have 3 groups of 4 free CPU ranks."
    assert impossible(job("a", 8, tensor=8), nodes, None) is not None
    assert impossible(job("a", 8, tensor=8), nodes, 64) is None


def test_cordoned_nodes_count_for_no_new_gang() -> None:
    nodes = [node(cpu=4), node(cpu=4, cordoned=True)]
    large, small = decide([job("a", 8), job("b", 4)], nodes, {}, None)
    assert isinstance(large, Wait) and large.reason == "waiting_for_nodes"
    assert large.message == (
        "Needs 8 ranks, 4 of 8 CPU ranks are on nodes in use, the others on cordoned ones; see `shardyard nodes`."
    )
    assert small == Start("b", "cpu"), "a cordon must not stop those who have room"
    assert impossible(job("a", 8), nodes, None) is None
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
    assert impossible(spared, nodes, None) is None


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
def test_auto_is_gpus_where_there_are_enough(wanted: Wanted, cpu: int, cuda: int, device: Device) -> None:
    assert resolve(wanted, 4, {"cpu": cpu, "cuda": cuda}) == device


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


def elastic(name: str, *sizes: int, least: int = 1, tensor: int = 1, wanted: Wanted = "cpu") -> Waiting:
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
