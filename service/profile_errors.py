"""Why a rank is not profiled, or no command runs beside it: errors with a stable code and a remedy, as those of `errors.py`."""

from .errors import ShardyardError


class ProfileRankUnknown(ShardyardError):
    """The job has no rank of this number."""

    code = "profile_rank_unknown"


class TooManyProfiles(ShardyardError):
    """Too many profiles of this job are open."""

    code = "too_many_profiles"


class ProfileNotPossible(ShardyardError):
    """The job has no profiles of this kind."""

    code = "profile_not_possible"


class ExecDisabled(ShardyardError):
    """Commands beside ranks are not enabled on this server."""

    code = "exec_disabled"

    def __init__(self) -> None:
        remedy = "If who has the access token may run commands as the jobs' user, set SHARDYARD_EXEC=true for the API and the dispatchers."
        super().__init__("Commands beside ranks are not enabled on this server.", remedy=remedy)


class ExecOpen(ShardyardError):
    """A command runs beside this rank."""

    code = "exec_open"


class CommandTooLong(ShardyardError):
    """The command has too many bytes."""

    code = "command_too_long"
