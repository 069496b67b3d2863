import pytest

from shardyard.workers.messages.stop_request import Ending, agreed, votes


@pytest.mark.parametrize(
    ("heard", "do"),
    [
        (["", "", ""], Ending.NO),
        (["", "save", ""], Ending.SAVE),
        (["save", "stop", ""], Ending.STOP),
        (["stop", "stop", "stop"], Ending.STOP),
    ],
)
def test_all_ranks_do_what_one_of_them_has_heard(heard: list[str], do: Ending) -> None:
    sums = [sum(numbers) for numbers in zip(*(votes(Ending(one)) for one in heard), strict=True)]
    assert agreed(*sums) is do
