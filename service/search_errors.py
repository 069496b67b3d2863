"""Why a log is not searched: errors with a stable code and a remedy, as those of `errors.py`."""

from .errors import ShardyardError


class TooManySearches(ShardyardError):
    """This process already searches the maximum number of logs."""

    code = "too_many_searches"
    retry_after_s = 2

    def __init__(self) -> None:
        super().__init__("Too many logs are being searched.", remedy="Try again in a few seconds.")


class InvalidPattern(ShardyardError):
    """The pattern of a search is not a regular expression, or is too large."""

    code = "invalid_pattern"


class SearchTooSlow(ShardyardError):
    """The database did not search even a small part of a log in time."""

    code = "search_too_slow"
    retry_after_s = 10

    def __init__(self) -> None:
        remedy = "Try again later, or search for a shorter text."
        super().__init__("The database did not get through any part of the log in time.", remedy=remedy)
