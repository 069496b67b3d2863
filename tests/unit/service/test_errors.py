from shardyard.service import database_errors, errors
from shardyard.service.errors import ShardyardError


def test_codes_are_unique_and_stable_words() -> None:
    every = vars(errors) | vars(database_errors)
    kinds = [kind for kind in every.values() if isinstance(kind, type) and issubclass(kind, ShardyardError)]
    codes = [kind.code for kind in kinds]
    assert len(codes) == len(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)
