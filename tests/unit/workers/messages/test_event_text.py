"""Each event of rank 0 is one line or none."""

import math

from shardyard.workers.messages.event import EvalEvent, to_json
from shardyard.workers.messages.event_text import format_event
from shardyard.workers.messages.rank_event import RankStepEvent


def test_a_step_says_its_loss_and_whether_it_was_skipped() -> None:
    step = {"step": 3, "loss": 1.5, "lr": 1e-3, "tokens_per_s": 1234.5, "skipped": True}
    assert format_event("step", step) == "step      3  loss 1.500000  lr 1.00e-03  1,234 tokens/s  skipped"


def test_a_skipped_step_without_a_finite_loss_says_so() -> None:
    step = to_json(RankStepEvent(step=3, loss=math.nan, lr=1e-3, tokens_per_s=1234.5, skipped=True))
    assert format_event("step", step) == "step      3  loss not finite  lr 1.00e-03  1,234 tokens/s  skipped"


def test_the_other_ranks_steps_and_the_summary_need_no_line() -> None:
    assert format_event("step", {"step": 3, "step_s": 0.1}) is None
    assert format_event("summary", {"steps": 3}) is None


def test_validation_stands_beside_the_unigram_loss() -> None:
    line = format_event("eval", {"step": 9, "loss": 1.9583, "unigram_loss": 3.1727})
    assert line == "step      9  validation loss 1.9583  (unigram loss 3.1727)"


def test_validation_says_how_evenly_experts_were_used() -> None:
    routing = {"balance_loss": 1.04, "router_z_loss": 3.2, "dropped": 0.015}
    line = format_event("eval", {"step": 9, "loss": 1.9583, "unigram_loss": 3.1727, **routing})
    assert line is not None
    assert line.endswith("experts' balance 1.040 (1 is even), 1.5% dropped")


def test_a_validation_whose_numbers_are_not_finite_says_so() -> None:
    lost = EvalEvent(step=9, loss=math.nan, unigram_loss=3.1727, tokens=8, balance_loss=math.inf, dropped=math.nan)
    line = "step      9  validation loss not finite  (unigram loss 3.1727)  experts' balance not finite (1 is even), not finite dropped"
    assert format_event("eval", to_json(lost)) == line


def test_an_event_of_another_form_is_json() -> None:
    assert format_event("eval", {"step": None, "unigram_loss": None}) == 'eval: {"step": null, "unigram_loss": null}'


def test_a_probe_says_how_long_a_pipeline_waited() -> None:
    bubble = {"bubble_measured": {"min": 0.25, "mean": 0.3, "max": 0.351}, "bubble_simulated": 0.2727}
    line = "step      2  pipeline bubble 30.0% (25.0% to 35.1% over ranks), 27.3% with free messages"
    assert format_event("probe", {"step": 2, "traffic": {}, "memory": {}, **bubble}) == line
    assert format_event("probe", {"step": 2, "traffic": {}, "memory": {}}) is None


def test_a_checkpoint_says_how_long_training_was_held() -> None:
    saved = {"step": 4, "path": "/c/step-4", "bytes": 14_600_000, "seconds": 0.214, "held_s": 0.016}
    line = "step      4  saved /c/step-4 (14,600,000 bytes in 0.21 s, training paused for 0.02 s)"
    assert format_event("checkpoint", saved) == line


def test_an_incident_that_training_lives_with_is_said() -> None:
    incident = {"cause": "checkpoint_failed", "rank": None, "message": "No space left", "step": 4}
    assert format_event("incident", incident) == "checkpoint_failed: No space left"


def test_a_plan_on_gpus_says_what_was_left_to_them() -> None:
    plan = {"layout": "data 2", "batch": "8", "parameters": 1000, "device": "cuda"}
    assert format_event("plan", plan) == "data 2; 8; 1,000 parameters on cuda"
    reasons = {"precision": "bf16", "compile": True, "choices": ["precision is bf16: the devices are GPUs."]}
    line = "data 2; 8; 1,000 parameters on cuda in bf16, compiled. precision is bf16: the devices are GPUs."
    assert format_event("plan", {**plan, **reasons}) == line
    on_cpus = format_event("plan", {**plan, **reasons, "device": "cpu", "precision": "fp32", "compile": False})
    assert on_cpus == "data 2; 8; 1,000 parameters on cpu in fp32"
