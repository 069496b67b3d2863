"""Torch's schedules still start and await their messages by the functions that a traced step replaces."""

import inspect

from torch.distributed.pipelining import Schedule1F1B, schedules

from shardyard.strategies.pipeline_parallel.p2p_trace import seen


def test_a_traced_step_replaces_what_schedules_call() -> None:
    code = inspect.getsource(Schedule1F1B)
    assert "_batch_p2p(" in code and "_wait_batch_p2p(" in code
    before = schedules._batch_p2p, schedules._wait_batch_p2p
    with seen():
        during = schedules._batch_p2p, schedules._wait_batch_p2p
        assert not set(during) & set(before)
        assert list(schedules._batch_p2p([])) == []
    assert (schedules._batch_p2p, schedules._wait_batch_p2p) == before
