import pytest

from shardyard.strategies.data_parallel.key_assignment import REQUEST_NUMBERS
from shardyard.strategies.data_parallel.stale_messages import Push, Request, empty_request


@pytest.mark.parametrize(
    "request_",
    [
        Request(3, 7),
        Request(0, 2**40, meets=True),
        Request(1023, 5, push=Push(0.1, 2.5, 1e300, 0.25, True)),
        Request(1, 9, ends=True),
    ],
    ids=["pulls", "meets", "pushes", "ends"],
)
def test_a_request_comes_back_from_its_numbers(request_: Request) -> None:
    numbers = empty_request()
    assert numbers.numel() == REQUEST_NUMBERS
    numbers.copy_(request_.numbers())
    assert Request.of(numbers) == request_
