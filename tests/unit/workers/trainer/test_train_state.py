from dataclasses import replace

import pytest

from shardyard.workers.trainer.train_state import Progress, averaged_steps

SOME = Progress(3, 5.0, [4.0, 3.5], 4.2, 1.5, 0.25)


def test_progress_comes_back_and_keeps_the_keys_of_a_manifest() -> None:
    state = SOME.state_dict()
    assert list(state) == ["began_at", "first_loss", "last_losses", "validation_loss", "trained_s", "first_step_s"]
    assert Progress.from_state_dict(state) == SOME
    assert Progress.from_state_dict({}) == Progress()
    with pytest.raises(TypeError):
        Progress.from_state_dict(state | {"step": 3})


def test_a_kept_state_does_not_change_with_the_next_step() -> None:
    progress = replace(SOME)
    state = progress.state_dict()
    progress.last_losses.append(1.0)
    assert state["last_losses"] == [4.0, 3.5]


def test_the_final_loss_is_a_mean_of_a_tenth_of_the_steps() -> None:
    assert [averaged_steps(steps) for steps in (1, 9, 10, 50, 199, 200, 10_000)] == [1, 1, 1, 5, 19, 20, 20]
