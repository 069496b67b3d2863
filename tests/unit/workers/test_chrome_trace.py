"""Trace events as Chrome's format: every slice on its rank, and no thread's slices half within each other."""

from typing import Any

from shardyard.workers.chrome_trace import chrome_trace


def event(rank: int, step: int, began: float, **changes: Any) -> dict[str, Any]:
    spans = [
        [0, "forward", "forward", 0, 400, 0, None],
        [0, "collective", "all_gather data", 100, 50, None, None],
        [1, "collective", "all_gather", -20, 170, None, None],
        [1, "collective", "all_gather", 90, 110, None, None],
    ]
    part = {"id": "t", "rank": rank, "step": step, "began": began, "seconds": 0.001, "error_s": 2e-5, "spans": spans}
    part |= {"sums": {"forward": 0.0004, "other": 0.0006}, "lanes": ["training", "data"], "dropped": 0}
    return part | {"pipeline": None} | changes


def slices(trace: dict[str, Any], rank: int) -> dict[str, list[dict[str, Any]]]:
    """Name of thread → its slices."""
    mine = [one for one in trace["traceEvents"] if one["pid"] == rank]
    names = {one["tid"]: one["args"]["name"] for one in mine if one["name"] == "thread_name"}
    return {name: [one for one in mine if one["ph"] == "X" and one["tid"] == tid] for tid, name in names.items()}


def test_ranks_are_processes_on_one_clock() -> None:
    trace = chrome_trace([event(1, 5, 1000.0005), event(0, 5, 1000.0), event(0, 6, 1000.002)])
    names = {one["pid"]: one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    assert [(one["name"], one["ts"]) for one in slices(trace, 0)["steps"]] == [("step 5", 0.0), ("step 6", 2000.0)]
    (step,) = slices(trace, 1)["steps"]
    assert step["ts"] == 500.0 and step["dur"] == 1000.0
    assert step["args"] == {"forward": "0.400 ms", "other": "0.600 ms", "clock within": "20 us", "spans left out": 0}
    forward, gather = slices(trace, 1)["training"]
    assert (forward["ts"], forward["cat"], forward["args"]) == (500.0, "forward", {"micro-batch": 0})
    assert gather["ts"] == 600.0 and gather["ts"] + gather["dur"] <= forward["ts"] + forward["dur"]


def test_what_overlaps_has_a_thread_of_its_own() -> None:
    threads = slices(chrome_trace([event(0, 5, 1000.0)]), 0)
    assert {name: [one["ts"] for one in found] for name, found in threads.items() if name.startswith("data")} == {
        "data": [-20.0],
        "data (2)": [90.0],
    }


def test_the_ideal_schedule_stands_beside_the_real_one() -> None:
    ideal = [["F", 2, 0, 10, 30], ["W", 2, 0, 40, 5]]
    pipeline = {"place": 2, "bubble_measured": 0.25, "bubble_simulated": 0.2, "ideal": ideal}
    threads = slices(chrome_trace([event(3, 5, 1000.0, pipeline=pipeline)]), 3)
    found = [(one["name"], one["cat"], one["ts"], one["dur"]) for one in threads["ideal schedule"]]
    assert found == [("2F0", "forward", 10.0, 30.0), ("2W0", "weight", 40.0, 5.0)]
    assert threads["steps"][0]["args"]["bubble_measured"] == "25.0%"


def test_nothing_is_a_trace_too() -> None:
    assert chrome_trace([])["traceEvents"] == []
