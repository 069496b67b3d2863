import torch
from torch import nn

from shardyard.strategies.data_parallel.buckets import Bucket, BucketOrder, fill_buckets
from shardyard.strategies.param_shard import DimShard, Parameter


def parameter(*shape: int) -> Parameter:
    value = nn.Parameter(torch.randn(shape))
    return Parameter("x", value, (), shape)


def test_small_parameters_travel_together_and_large_ones_alone() -> None:
    small, more, large, last = parameter(4, 4), parameter(4, 4), parameter(16, 16), parameter(4, 4)
    filled = fill_buckets([small, more, large, last], 4, limit=256)
    assert filled == [[large], [last, more, small]]


def test_buckets_stand_in_the_order_in_which_backward_completes_them() -> None:
    parameters = [parameter(size, 4) for size in (16, 2, 30, 2, 2, 16)]
    order = {p.value: number for number, p in enumerate(reversed(parameters))}
    completed = [max(order[p.value] for p in bucket) for bucket in fill_buckets(parameters, 4, limit=256)]
    assert completed == sorted(completed)


def test_ranks_with_unequal_parts_make_the_same_buckets() -> None:
    """Of 257 rows one rank has a row more, with which the others' bucket would just not be full."""

    def names(rank: int) -> list[list[str]]:
        rows = (129, 128)[rank]
        parts = [Parameter("norm", nn.Parameter(torch.zeros(4)), (), (4,))]
        parts += [Parameter("head", nn.Parameter(torch.zeros(rows, 4)), (DimShard("tensor", 0, 2, rank),), (257, 4))]
        return [[p.name for p in bucket] for bucket in fill_buckets(parts, 4, limit=2 * 129 * 16 - 1)]

    assert names(0) == names(1)


def test_no_bucket_exceeds_its_limit_but_for_a_parameter_alone() -> None:
    filled = fill_buckets([parameter(rows, 3) for rows in range(1, 40)], 4, limit=200)
    assert sum(map(len, filled)) == 39
    assert all(len(bucket) == 1 or sum(p.local.nbytes for p in bucket) <= 200 for bucket in filled)


def test_a_gradient_alone_is_its_bucket_and_is_not_copied() -> None:
    own = parameter(6, 5)
    bucket = Bucket([own], 3)
    own.value.grad = torch.randn(6, 5)
    grad = own.value.grad
    bucket.take(0, last=True)
    assert own.value.grad is None
    assert bucket.finish().data_ptr() == grad.data_ptr()
    assert torch.equal(bucket.finish(), grad.view(3, 10))


def test_a_gradient_whose_memory_autograd_still_needs_is_copied() -> None:
    """As of a parameter that is added to a hidden state through a view: the gradient is the state's, too."""
    own, others = parameter(6, 5), nn.Parameter(torch.randn(1, 6, 5))
    bucket = Bucket([own], 1)

    def send(_: int) -> None:
        bucket.finish().zero_()

    BucketOrder([bucket], send).arm(sending=True)
    (others.tanh() + own.value.unsqueeze(0)).sum().backward()
    assert others.grad is not None and others.grad.abs().min() > 0


def test_micro_batches_add_up_alike_alone_and_packed() -> None:
    gradients = [[torch.randn(6, 5), torch.randn(7, 3)] for _ in range(3)]
    totals = [sum(pair[number] for pair in gradients) for number in (0, 1)]
    alone, odd = parameter(6, 5), parameter(7, 3)  # 7 rows in 3 parts: padded, so packed though alone
    packed = Bucket([alone, odd], 3)
    for buckets in ([packed], [Bucket([alone], 3), Bucket([odd], 3)]):
        for pair in gradients:
            for value, grad in zip((alone.value, odd.value), pair, strict=True):
                value.grad = grad.clone()
            for bucket in buckets:
                for number in range(len(bucket.parameters)):
                    bucket.take(number, last=True)
        rows = torch.cat([bucket.finish() for bucket in buckets], dim=1)
        assert torch.allclose(rows[:, :10], totals[0].view(3, 10))
        assert torch.allclose(rows[:, 10:].reshape(-1)[:21], totals[1].flatten())
        assert torch.equal(rows[2, 10 + 3 :], torch.zeros(6))
        for bucket in buckets:
            bucket.clear()


def test_rows_stay_where_gradients_may() -> None:
    for stay in (True, False):
        both = Bucket([parameter(4, 4), parameter(4, 4)], 2, stay)
        rows = both.finish()
        both.clear()
        assert both.bytes == (rows.nbytes if stay else 0)
        assert torch.equal(both.finish(), torch.zeros(2, 16))


def test_what_is_set_aside_is_summed_apart() -> None:
    both = Bucket([parameter(4, 4), parameter(4, 4)], 1, True, torch.float64)
    for value in (1.0, 2.0, 3.0):  # set 1 aside, sum 2 and 3, take 1 back
        if value == 2.0:
            both.swap()
        for number, own in enumerate(both.parameters):
            own.value.grad = torch.full((4, 4), value)
            both.take(number, last=True)
    assert both.bytes == 2 * 32 * 8
    assert both.finish().eq(5).all()
    both.swap()
    assert both.finish().eq(1).all()
    both.drop_swapped()
    both.swap()
    assert both.finish().eq(0).all()


def test_values_spread_alike_alone_and_packed() -> None:
    first, second = parameter(6, 5), parameter(7, 3)
    assert Bucket([first, second], 3).landing is None
    assert Bucket([second], 3).landing is None  # padding has no place in it
    home = Bucket([first], 3).landing
    assert home is not None
    rows = torch.randn(3, 19)
    Bucket([first, second], 3).spread(rows)
    packed = first.local.clone()
    home.copy_(rows[:, :10])
    Bucket([first], 3).spread(home)
    assert torch.equal(first.local, packed)
    assert torch.equal(second.local.flatten(), rows[:, 10:].reshape(-1)[:21])


def test_a_bucket_is_sent_as_soon_as_it_is_complete() -> None:
    parameters = [parameter(16, 4), parameter(2, 4), parameter(2, 4)]
    buckets = [Bucket(bucket, 1) for bucket in fill_buckets(parameters, 4, limit=128)]
    sent: list[int] = []
    order = BucketOrder(buckets, sent.append)
    order.arm(sending=True)
    sum(p.value.sum() for p in parameters).backward()
    assert sent == list(range(len(buckets)))
    order.flush()
    assert sent == list(range(len(buckets)))


def _two_stages(always: bool) -> tuple[list[Parameter], BucketOrder, list[int], list[Bucket]]:
    """Three parameters, of which the first two share a bucket, which is sent last."""
    parameters = [parameter(2, 4), parameter(2, 4), parameter(16, 4)]
    buckets = [Bucket(bucket, 1) for bucket in fill_buckets(parameters, 4, limit=128)]
    sent: list[int] = []
    return parameters, BucketOrder(buckets, sent.append, always), sent, buckets


def test_a_stages_last_pass_sends_its_buckets_while_others_grow_on() -> None:
    for always in (False, True):
        (low, high, last), order, sent, buckets = _two_stages(always)
        for stage in ([last], [low, high]):
            for final in (False, True):
                with order.finishing([p.value for p in stage if final]):
                    sum(p.value.sum() for p in stage).backward()
            assert sent == ([0] if stage == [last] else [0, 1])
        assert all(torch.equal(bucket.finish(), torch.full_like(bucket.finish(), 2)) for bucket in buckets)


def test_a_pass_without_hooks_sends_at_its_end() -> None:
    (low, high, last), order, sent, buckets = _two_stages(False)
    with order.finishing([last.value]):
        last.value.grad = torch.ones_like(last.value)  # as `torch.autograd.grad` and an assignment
        assert sent == []
    assert sent == [0]
    with order.finishing([low.value]):
        low.value.sum().backward()
    assert sent == [0]
    with order.finishing([high.value]):
        high.value.sum().backward()
        assert sent == [0, 1]
    assert torch.equal(buckets[0].finish(), torch.ones(1, 64))


def test_buckets_are_sent_in_their_order_whichever_stage_is_done_first() -> None:
    (low, high, last), order, sent, _ = _two_stages(False)
    with order.finishing([low.value, high.value]):
        (low.value.sum() + high.value.sum()).backward()
    assert sent == []
    with order.finishing([last.value]):
        last.value.sum().backward()
    assert sent == [0, 1]
    order.flush()
    assert sent == [0, 1]
    order.flush()  # of a step of which no pass was announced
    assert sent == [0, 1, 0, 1]
