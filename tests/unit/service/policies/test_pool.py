"""Jobs whose devices must be together: one image, one GPU model, one zone, one NVLink domain."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.policies.pool import Machine, Pool
from shardyard.service.policies.queue import (
    DEVICES,
    Decision,
    Device,
    Inventory,
    Start,
    Wait,
    Whole,
    decide,
    impossible,
    resolved,
)
from shardyard.service.policies.waiting import Waiting, Within


def gpus(count: int, model: str = "H100", free: int | None = None, domain: str = "", zone: str = "") -> Machine:
    capacity: dict[Device, int] = {"cpu": 0, "cuda": count}
    now: dict[Device, int] = {"cpu": 0, "cuda": count if free is None else free}
    return Machine(capacity, now, model=model, domain=domain, zone=zone)


def job(name: str, ranks: int, gpu: str = "", within: Within | None = None, tensor: int = 1) -> Waiting:
    return Waiting(name, ranks, tensor, "cuda", gpu=gpu, within=within)


def restricted(job: Waiting, machines: list[Machine], device: Device) -> bool:
    return Pool(device, machines, {}, None, {}).restricts(job)


def message(decision: Decision) -> str:
    assert isinstance(decision, Wait)
    return decision.message


def test_a_job_waits_for_the_model_that_it_names() -> None:
    nodes = [gpus(8, "A100"), gpus(8, "H100", free=4)]
    (wait,) = decide([job("a", 8, "h100")], nodes, {}, None)
    assert wait == Wait("a", "waiting_for_devices", "Needs 8 ranks on h100 GPUs; 4 of 8 are free together.")
    assert decide([job("a", 4, "H100"), job("b", 8, "A100")], nodes, {}, None) == [
        Start("a", "cuda"),
        Start("b", "cuda"),
    ]


def test_a_job_that_waits_for_one_model_leaves_the_other_to_those_behind_it() -> None:
    nodes = [gpus(8, "A100"), gpus(8, "H100", free=4)]
    first, second, third = decide([job("a", 8, "H100"), job("b", 4, "H100"), job("c", 8)], nodes, {}, None)
    assert isinstance(first, Wait) and isinstance(second, Wait) and second.reason == "waiting_for_turn"
    assert third == Start("c", "cuda")


def test_a_model_that_is_not_there_is_named_with_those_that_are() -> None:
    nodes = [gpus(8, "A100"), gpus(8, "H100")]
    never = impossible(job("a", 8, "L4"), Inventory(nodes))
    assert never == "Needs 8 ranks on L4 GPUs; the cluster has A100, H100."
    away: Whole = {"cuda": {"": [8, 8, 8]}}
    assert impossible(job("a", 8, "L4"), Inventory(nodes, whole=away)) is None, "the node that is away may have it"
    (wait,) = decide([job("a", 8, "L4")], nodes, {}, None, away)
    assert isinstance(wait, Wait) and wait.reason == "waiting_for_nodes" and "has A100, H100" in wait.message


def test_gpus_of_several_models_run_one_gang_only_if_it_is_asked_for() -> None:
    nodes = [gpus(8, "A100"), gpus(8, "H100")]
    assert impossible(job("a", 16), Inventory(nodes)) == (
        "Needs 16 ranks on GPUs of one model; the most together are 8."
    )
    assert decide([job("a", 16, "mixed")], nodes, {}, None) == [Start("a", "cuda")]
    auto = replace(job("a", 16), wanted="auto")
    assert resolved(auto, Inventory(nodes)) == "cuda", "it must not run on CPUs because the GPUs are of two models"
    assert (
        resolved(replace(auto, cpus=99.0), Inventory([*nodes, Machine({"cpu": 64, "cuda": 0}, {"cpu": 64, "cuda": 0})]))
        == "cuda"
    )


def test_one_domain_or_one_zone_must_have_room() -> None:
    nodes = [gpus(8, domain="a", zone="x"), gpus(8, domain="b", zone="x"), gpus(8, domain="b", zone="y"), gpus(64)]
    assert decide([job("a", 16, within="zone")], nodes, {}, None) == [Start("a", "cuda")]
    assert impossible(job("a", 16, within="domain"), Inventory(nodes)) == (
        "Needs 16 ranks on GPUs of one model in one NVLink domain; the most together are 8."
    )
    (wait,) = decide([job("a", 8, within="domain")], [gpus(8, domain="a", free=7), gpus(8)], {}, None)
    assert message(wait) == ("Needs 8 ranks on GPUs of one model in one NVLink domain; 7 of 8 are free together.")
    assert impossible(job("a", 8, within="domain"), Inventory([gpus(8)])) == (
        "Needs 8 ranks on GPUs of one model in one NVLink domain; no node has a label of its NVLink domain."
    )


def test_a_job_runs_on_nodes_of_its_image_and_no_other_does() -> None:
    nodes = [gpus(8), replace(gpus(8), image="nemo"), replace(gpus(4), image="dev")]
    named = replace(job("a", 8), image="nemo")
    assert decide([named, job("b", 8)], nodes, {}, None) == [Start("a", "cuda"), Start("b", "cuda")]
    first, second = decide([named, replace(named, id="b", world_size=4)], nodes, {}, None)
    assert first == Start("a", "cuda")
    assert message(second) == "Needs 4 ranks on GPUs of one model on nodes of the image nemo; 0 of 8 are free together."
    assert impossible(job("a", 16), Inventory(nodes)) == (
        "Needs 16 ranks on GPUs of one model on nodes of the cluster's own image; the most together are 8."
    )
    assert impossible(replace(job("a", 16), image=None), Inventory(nodes)) is None, "no matter which"
    assert restricted(job("a", 8), nodes, "cuda") and restricted(named, nodes, "cuda")


def test_an_image_that_is_not_there_is_named_with_those_that_are() -> None:
    nodes = [gpus(8), replace(gpus(8), image="nemo")]
    unknown = replace(job("a", 8), image="namo")
    assert impossible(unknown, Inventory(nodes)) == (
        "Needs 8 ranks on GPUs of one model on nodes of the image namo; the cluster's nodes have the cluster's own image, the image nemo."
    )
    away: Whole = {"cuda": {"": [8], "nemo": [8], "namo": [8]}}
    assert impossible(unknown, Inventory(nodes, whole=away)) is None, "the node that is away has it"
    (wait,) = decide([unknown], nodes, {}, None, away)
    assert message(wait) == (
        "Needs 8 ranks on GPUs of one model on nodes of the image namo; all of these are away; see `shardyard nodes`."
    )
    assert impossible(unknown, Inventory([])) is None, "nothing is known of the cluster yet"


def test_a_node_that_is_away_serves_jobs_of_its_image_alone() -> None:
    """Two nodes of CPUs, and one with GPUs and an image of its own, which may live or not."""
    plain = Machine({"cpu": 4, "cuda": 0}, {"cpu": 4, "cuda": 0})
    nemo = replace(gpus(8), image="nemo")
    whole: Whole = {"cpu": {"": [4, 4]}, "cuda": {"nemo": [8]}}
    refused = "Needs 1 ranks on GPUs of one model on nodes of the cluster's own image; the cluster's nodes have the image nemo."
    for nodes in ([plain, plain, nemo], [plain, plain]):
        cluster = Inventory(nodes, whole=whole)
        assert resolved(replace(job("a", 2), wanted="auto"), cluster) == "cpu"
        assert resolved(replace(job("a", 9), wanted="auto"), cluster) == "cpu", "it is too large, and no GPU is for it"
        assert resolved(replace(job("a", 2), wanted="auto", image="nemo"), cluster) == "cuda"
        assert impossible(job("a", 1), cluster) == refused
        assert impossible(replace(job("a", 8), image="nemo"), cluster) is None
    assert impossible(job("a", 1), Inventory([], whole=whole)) == refused


@given(st.data())
def test_which_nodes_live_decides_neither_the_device_nor_a_refusal(data: st.DataObject) -> None:
    images, sizes = st.sampled_from(["", "nemo"]), st.integers(0, 8)
    fleet = [
        replace(Machine({"cpu": cpu, "cuda": cuda}, {"cpu": cpu, "cuda": cuda}), image=image)
        for cpu, cuda, image in data.draw(st.lists(st.tuples(sizes, sizes, images), min_size=1, max_size=4))
    ]
    now = [one for one in fleet if data.draw(st.booleans())]
    whole: Whole = {
        device: {image: [one.capacity[device] for one in fleet if one.image == image] for image in ("", "nemo")}
        for device in DEVICES
    }
    tensor = data.draw(st.sampled_from([1, 2, 4]))
    wanted = data.draw(st.sampled_from(["auto", "cpu", "cuda"]))
    asked = Waiting("a", tensor * data.draw(st.integers(1, 5)), tensor, wanted, image=data.draw(images))
    full, partial = Inventory(fleet, whole=whole), Inventory(now, whole=whole)
    assert resolved(asked, full) == resolved(asked, partial)
    assert (impossible(asked, full) is None) == (impossible(asked, partial) is None)


def test_a_gang_that_is_being_built_may_be_in_any_part() -> None:
    nodes = [gpus(8, "A100"), gpus(8, "H100")]
    (wait,) = decide([job("a", 8)], nodes, {"cuda": 1}, None)
    assert isinstance(wait, Wait), "the nodes do not show yet which of them has it"
    seen = [gpus(8, "A100", free=7), gpus(8, "H100")]
    assert decide([job("a", 8)], seen, {"cuda": 1}, None) == [Start("a", "cuda")]


@given(
    st.lists(st.tuples(st.sampled_from("AH"), st.integers(0, 8)), max_size=5), st.lists(st.integers(1, 9), max_size=6)
)
def test_no_part_gives_more_than_it_has(machines: list[tuple[str, int]], wanted: list[int]) -> None:
    nodes = [gpus(8, model, free) for model, free in machines]
    pool = Pool("cuda", nodes, {}, None, {})
    free = {model: sum(n for one, n in machines if one == model) for model in "AH"}
    for ranks in wanted:
        one = job("a", ranks)
        if pool.fits(one):
            pool.take(one)
            left = {
                m: sum(f for f, node in zip(pool.free, pool.machines, strict=True) if node.model == m) for m in "AH"
            }
            changed = [model for model in "AH" if left[model] != free[model]]
            assert len(changed) == 1 and free[changed[0]] - left[changed[0]] == ranks
            free = left
        else:
            assert all(number < ranks for number in free.values())


def test_most_clusters_and_jobs_are_not_restricted() -> None:
    alike, mixed = [gpus(8), gpus(4)], [gpus(8), gpus(8, "A100")]
    assert not restricted(job("a", 8), alike, "cuda") and not restricted(job("a", 8, "H100"), alike, "cuda")
    assert restricted(job("a", 8), mixed, "cuda") and not restricted(job("a", 8, "mixed"), mixed, "cuda")
    assert restricted(job("a", 8, within="zone"), alike, "cuda")


def test_cores_that_a_job_reserves_beside_its_gpus_must_be_there() -> None:
    nodes = [replace(gpus(8), cores=64.0, cores_free=40.0), replace(gpus(8), cores=64.0, cores_free=64.0)]
    eight = replace(job("a", 8), cpus=8.0)
    assert decide([eight, eight], nodes, {}, None)[0] == Start("a", "cuda")
    (_, second) = decide([eight, eight], nodes, {}, None)
    assert message(second) == (
        "Needs 8 ranks on GPUs of one model with 8 cores for each GPU; 5 of 16 are free together."
    )
    never = impossible(replace(job("a", 16), cpus=9.0), Inventory(nodes))
    assert never is not None and never.endswith("with 9 cores for each GPU; the most together are 14.")
    assert decide([job("a", 8), job("b", 8)], nodes, {}, None) == [Start("a", "cuda"), Start("b", "cuda")]
    assert Waiting.of(replace(eight, id="").shape) == replace(eight, id="")
    on_cpus = replace(Waiting("a", 8, 1, "cpu"), cpus=100.0)
    assert decide([on_cpus], [Machine({"cpu": 8, "cuda": 0}, {"cpu": 8, "cuda": 0})], {}, None) == [Start("a", "cpu")]


def test_cores_are_given_away_once() -> None:
    """A node of 16 cores, with two CPU ranks on each: 12 cores go to a job on GPUs, and with them 24 ranks; and the other way round."""
    node = Machine({"cpu": 32, "cuda": 4}, {"cpu": 32, "cuda": 4}, cores=16.0, cores_free=16.0)
    bare = Machine({"cpu": 8, "cuda": 0}, {"cpu": 8, "cuda": 0}, cores=4.0, cores_free=4.0)
    on_gpus = replace(job("g", 4), cpus=3.0)
    few, many = Waiting("few", 16, 1, "cpu"), Waiting("many", 17, 1, "cpu")
    start = Start("g", "cuda")
    assert decide([on_gpus, few], [bare, node], {}, None) == [start, Start("few", "cpu")]
    started, waits = decide([on_gpus, many], [bare, node], {}, None)
    assert started == start and isinstance(waits, Wait)
    assert waits.message == "Needs 17 ranks, 16 of 40 CPU ranks are free; waiting for 1 more."
    first, after = decide([many, on_gpus], [bare, node], {}, None)
    assert first == Start("many", "cpu") and isinstance(after, Wait) and after.reason == "waiting_for_devices"
    small = [replace(job(name, 1), cpus=0.75) for name in ("a", "b")]
    *_, full = decide([*small, Waiting("c", 37, 1, "cpu")], [bare, node], {}, None)
    assert full == Start("c", "cpu"), "1.5 cores are 3 ranks, however many jobs have them"


def beside(cpu: int = 128, cpu_free: int | None = None, cuda: int = 8, cuda_free: int | None = None) -> Machine:
    """A node with four CPU ranks on each of its cores."""
    free: dict[Device, int] = {
        "cpu": cpu if cpu_free is None else cpu_free,
        "cuda": cuda if cuda_free is None else cuda_free,
    }
    return Machine({"cpu": cpu, "cuda": cuda}, free, cores=cpu / 4, cores_free=free["cpu"] / 4)


ON_GPUS = replace(job("g", 8), cpus=4.0)
TURN = ("waiting_for_devices", "waiting_for_turn")


def reasons(decisions: list[Decision]) -> tuple[str, ...]:
    return tuple(one.reason if isinstance(one, Wait) else one.device for one in decisions)


def test_cores_for_which_a_job_on_gpus_waits_go_to_no_later_job_on_cpus() -> None:
    """Or a stream of such jobs would take them forever, while the GPUs stay idle."""
    small = Waiting("c", 64, 1, "cpu")
    assert reasons(decide([ON_GPUS, small], [beside(cpu_free=64)], {}, None)) == TURN
    bare = beside(cpu=64, cuda=0)
    assert reasons(decide([ON_GPUS, small], [beside(cpu_free=64), bare], {}, None)) == ("waiting_for_devices", "cpu")
    large = replace(small, world_size=65)
    assert reasons(decide([ON_GPUS, large], [beside(cpu_free=64), bare], {}, None)) == TURN
    twice = decide([ON_GPUS, small, small], [beside(cpu_free=64), bare], {}, None)
    assert reasons(twice) == ("waiting_for_devices", "cpu", "waiting_for_turn")
    partly = beside(cpu=64, cuda=0, cpu_free=56)
    few = decide([ON_GPUS, small, replace(small, world_size=8)], [beside(cpu_free=64), partly], {}, None)
    assert reasons(few) == (*TURN, "waiting_for_turn"), (
        "or a stream of few ranks would take the node that is enough for many"
    )
    other = [replace(beside(cpu_free=64), model="H100"), replace(beside(), model="A100")]
    named = decide([replace(ON_GPUS, gpu="H100"), replace(small, world_size=128)], other, {}, None)
    assert reasons(named) == ("waiting_for_devices", "cpu"), "the other model is of no use to it"
    full = [beside(cpu_free=64), beside(cuda_free=0)]
    assert reasons(decide([ON_GPUS, small], full, {}, None)) == ("waiting_for_devices", "cpu"), "no GPU is free there"
    apart = [beside(cpu_free=64), replace(beside(cuda=0), image="nemo")]
    assert reasons(decide([ON_GPUS, replace(small, image="nemo")], apart, {}, None)) == ("waiting_for_devices", "cpu")
    lacks_gpus = decide([ON_GPUS, small], [beside(cpu_free=64, cuda_free=7)], {}, None)
    assert reasons(lacks_gpus) == ("waiting_for_devices", "cpu"), "until it has GPUs the cores would be idle"
    without = decide([replace(ON_GPUS, cpus=0.0), small], [beside(cpu_free=64, cuda_free=7)], {}, None)
    assert reasons(without) == ("waiting_for_devices", "cpu")


def test_cores_for_which_a_job_on_cpus_waits_go_to_no_later_job_on_gpus() -> None:
    large, pair = Waiting("c", 128, 1, "cpu"), replace(ON_GPUS, world_size=2)
    assert reasons(decide([large, pair], [beside(cpu_free=64)], {}, None)) == TURN
    none = decide([large, replace(pair, cpus=0.0)], [beside(cpu_free=64)], {}, None)
    assert reasons(none) == ("waiting_for_devices", "cuda"), "it takes no cores"
    behind = decide([large, pair, replace(pair, cpus=0.0)], [beside(cpu_free=64)], {}, None)
    assert reasons(behind) == (*TURN, "waiting_for_turn"), "or a stream of jobs without cores would take its GPUs"
    other = decide([large, pair], [beside(cpu_free=60), beside(cuda=0, cpu_free=64)], {}, None)
    assert reasons(other) == ("waiting_for_devices", "cuda"), "the node without GPUs is enough once it is free"


def test_cores_of_a_gang_that_is_being_built_are_not_free() -> None:
    assert reasons(decide([ON_GPUS], [beside()], {"cpu": 4}, None)) == TURN[:1]
    assert reasons(decide([ON_GPUS], [beside()], {"cuda": 4}, None)) == TURN[:1], "it may have four of the GPUs"
    assert reasons(decide([replace(ON_GPUS, cpus=3.0)], [beside()], {"cpu": 32}, None)) == ("cuda",)
    seen = [beside(), beside(cuda=0, cpu_free=124)]
    assert reasons(decide([ON_GPUS], seen, {"cpu": 4}, None)) == ("cuda",)
