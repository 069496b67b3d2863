"""Sweeps on a real cluster: what early stopping saves, by the device-seconds of the attempts, also if the dispatcher is killed."""

import time
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane, until
from harness.patience import PATIENCE_S
from harness.sweep_program import document

RATES = [0.05 + 0.05 * at for at in range(18)]


@pytest.mark.full
def test_a_sweep_of_a_program_runs_its_trials_and_names_the_best(plane: ControlPlane, tmp_path: Path) -> None:
    spec = document(tmp_path, RATES, 2, 0.01, search="grid", trials=3)
    with plane.client() as client:
        sweep = client.wait_for_sweep(client.submit_sweep(spec).id, timeout_s=PATIENCE_S)
        assert (sweep.state, sweep.counts) == ("succeeded", {"succeeded": 3}), sweep.message
        assert sweep.best is not None and sweep.best.parameters == {"resources.env.LR": "0.15"}
        assert sweep.best.value == pytest.approx(0.0225 + 0.05 + 0.5)
        assert client.job(sweep.best.job or "").state == "succeeded"


@pytest.mark.timing
@pytest.mark.timeout(1500)
def test_early_stopping_finds_the_best_with_two_fifths_of_the_device_seconds(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Random search over 18 trials, and the same trials with early stopping, whose control plane is killed once."""
    draws = {"search": "random", "trials": 18, "parallel": 6}
    with plane.client() as client:
        whole = client.wait_for_sweep(
            client.submit_sweep(document(tmp_path, RATES, 81, 1.0, **draws)).id, timeout_s=12 * PATIENCE_S
        )
        asha = {"min_steps": 3, "max_steps": 81}
        halving = client.submit_sweep(document(tmp_path, RATES, 81, 1.0, **draws, asha=asha))
        until(lambda: client.sweep(halving.id).counts.get("paused", 0) >= 3, PATIENCE_S, "trials to be paused")
    plane.kill()
    time.sleep(1)
    plane.up()
    with plane.client() as client:
        halving = client.wait_for_sweep(halving.id, timeout_s=12 * PATIENCE_S)
        trials = client.trials(halving.id).items
        jobs = client.jobs(label={"shardyard/sweep": halving.id}, limit=200).items
    assert (whole.state, halving.state) == ("succeeded", "succeeded")
    assert whole.best is not None and halving.best is not None
    assert whole.best.value is not None and halving.best.value is not None
    print(f"device-seconds {halving.device_s:.0f} of {whole.device_s:.0f}: {halving.device_s / whole.device_s:.2f}")
    assert halving.best.value <= 1.05 * whole.best.value
    assert halving.device_s <= 0.4 * whole.device_s
    assert len(jobs) == 18 and {one.job for one in trials} == {job.id for job in jobs}
    assert all(one.state in ("succeeded", "stopped") for one in trials)
