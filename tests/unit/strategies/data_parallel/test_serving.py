import torch

from shardyard.strategies.data_parallel.serving import Serving


def test_a_server_has_no_share_of_the_loss() -> None:
    serving, tokens = Serving(), torch.zeros(0, 4, dtype=torch.int64)
    assert serving.train(tokens, tokens).item() == serving.validate(tokens, tokens).item() == 0
    assert not serving.last


def test_there_is_no_pipeline_to_report() -> None:
    serving = Serving()
    with serving.timed():
        assert (serving.plan(), serving.bubble()) == ({}, None)
