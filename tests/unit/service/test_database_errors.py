from shardyard.service import database_errors
from shardyard.service.database_errors import DatabaseError, DatabaseUnreachable

KINDS = [kind for kind in vars(database_errors).values() if isinstance(kind, type) and issubclass(kind, DatabaseError)]


def test_each_says_what_is_wrong_and_what_to_do() -> None:
    assert len(KINDS) == 13 and all(kind().message and kind().remedy for kind in KINDS)


def test_the_drivers_words_are_kept_out_of_the_message() -> None:
    error = DatabaseUnreachable("connection to db.internal as admin refused")
    assert "db.internal" not in f"{error} {error.remedy}" and "db.internal" in error.detail
