from shardyard.service import errors
from shardyard.service.errors import ShardyardError


def test_codes_are_unique_and_stable_words() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ShardyardError)]
    codes = [kind.code for kind in kinds]
    assert len(codes) == len(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)
