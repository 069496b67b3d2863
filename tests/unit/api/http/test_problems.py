"""How errors of the service become answers."""

import pytest

from shardyard.api.http.problems import CODES, DATABASE
from shardyard.service import database_errors, errors
from shardyard.service.database_errors import DatabaseError
from shardyard.service.errors import ShardyardError

EVERY = vars(errors) | vars(database_errors)
KINDS = [kind for kind in EVERY.values() if isinstance(kind, type) and issubclass(kind, ShardyardError)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, DatabaseError)])
def test_whatever_is_wrong_with_the_database_is_a_503_of_its_own(kind: type[DatabaseError]) -> None:
    status, title = CODES[kind.code]
    assert status == 503 and title and kind.code in DATABASE
    assert kind().remedy


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.retry_after_s is not None])
def test_what_may_be_tried_again_is_no_fault_of_the_request(kind: type[ShardyardError]) -> None:
    assert CODES[kind.code][0] == 503
