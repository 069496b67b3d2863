"""How errors of the service become answers."""

import pytest

from shardyard.api.http.problems import CODES, DATABASE
from shardyard.service import errors
from shardyard.service.errors import DatabaseError, ShardyardError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ShardyardError)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, DatabaseError)])
def test_whatever_is_wrong_with_the_database_is_a_503_of_its_own(kind: type[DatabaseError]) -> None:
    status, title = CODES[kind.code]
    assert status == 503 and title and kind.code in DATABASE
    assert kind().remedy


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.retry_after_s is not None])
def test_what_may_be_tried_again_is_no_fault_of_the_request(kind: type[ShardyardError]) -> None:
    assert CODES[kind.code][0] == 503
