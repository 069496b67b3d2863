import pytest

from shardyard.workers.messages.stop_request import StopRequest, agreed_stop, stop_votes


@pytest.mark.parametrize(
    ("heard", "do"),
    [
        (["", "", ""], StopRequest.NO),
        (["", "save", ""], StopRequest.SAVE),
        (["save", "stop", ""], StopRequest.STOP),
        (["stop", "stop", "stop"], StopRequest.STOP),
    ],
)
def test_all_ranks_do_what_one_of_them_has_heard(heard: list[str], do: StopRequest) -> None:
    sums = [sum(numbers) for numbers in zip(*(stop_votes(StopRequest(one)) for one in heard), strict=True)]
    assert agreed_stop(*sums) is do
