"""A dry run decides `auto` for its GPU model, says so, and compiles nothing."""

from dataclasses import replace

from harness.dry_run import DryRunner

LAYOUT = {"data": 2, "zero": 1}
PROFILED = {"pipeline": {"stages": 2, "split": "profile"}}


def test_a_spec_that_names_nothing_runs_in_bf16_as_one_that_names_it(dry: DryRunner) -> None:
    more = {"steps": 1000, "model": {"preset": "nano", "layers": 2}}
    auto = dry.report(LAYOUT, precision="auto", **more)
    named = dry.report(LAYOUT, precision="bf16", compile=False, **more)
    assert auto.precision == named.precision == "bf16" and named.choices == ()
    assert auto.choices[0] == "precision is bf16: the devices are GPUs."
    assert "does not compile blocks" in auto.choices[1]
    assert replace(auto, choices=(), seconds=0.0) == replace(named, seconds=0.0)


def test_a_split_by_profile_runs_with_the_stages_of_flops_and_says_so(dry: DryRunner) -> None:
    more = {"steps": 4, "model": {"preset": "nano", "layers": 2}, "precision": "bf16", "compile": False}
    profiled, plain = dry.report(PROFILED, **more), dry.report({"pipeline": 2}, **more)
    (reason,) = profiled.choices
    assert reason.endswith("its stages are those of FLOPs.")
    assert replace(profiled, choices=(), seconds=0.0, layout=plain.layout) == replace(plain, seconds=0.0)
