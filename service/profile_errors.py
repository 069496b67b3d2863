"""Why a rank is not profiled: errors with a stable code and a remedy, as those of `errors.py`."""

from .errors import ShardyardError


class ProfileRankUnknown(ShardyardError):
    """The job has no rank of this number."""

    code = "profile_rank_unknown"


class TooManyProfiles(ShardyardError):
    """Too many profiles of this job are open."""

    code = "too_many_profiles"
