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

    def __init__(self, message: str = "", remedy: str = "") -> None:
        usual = "If who has the access token may run commands as the jobs' user, set SHARDYARD_EXEC=true for the API and the dispatchers."
        super().__init__(message or "Commands beside ranks are not enabled on this server.", remedy=remedy or usual)


class ExecOpen(ShardyardError):
    """A command runs beside this rank."""

    code = "exec_open"


class RankUnreachable(ShardyardError):
    """The API cannot open a stream to the rank."""

    code = "rank_unreachable"


class PortClosed(ShardyardError):
    """No process accepts connections on the port of the rank's node."""

    code = "port_closed"


class CommandTooLong(ShardyardError):
    """The command has too many bytes."""

    code = "command_too_long"
