"""A dry run decides `auto` for its GPU model, says so, and compiles nothing."""

from dataclasses import replace

from harness.dry_run import DryRunner

LAYOUT = {"data": 2, "zero": 1}


def test_a_spec_that_names_nothing_runs_in_bf16_as_one_that_names_it(dry: DryRunner) -> None:
    more = {"steps": 1000, "model": {"preset": "nano", "layers": 2}}
    auto = dry.report(LAYOUT, precision="auto", **more)
    named = dry.report(LAYOUT, precision="bf16", compile=False, **more)
    assert auto.precision == named.precision == "bf16" and named.choices == ()
    assert auto.choices[0] == "precision is bf16: the devices are GPUs."
    assert "does not compile blocks" in auto.choices[1]
    assert replace(auto, choices=(), seconds=0.0) == replace(named, seconds=0.0)
