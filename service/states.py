"""The states of a job as one table. A move that is not in the table does not exist; a state without moves is final.

state        what it is                                   who moves it on, and what a crash there leaves
queued       stored, waiting for its turn                 a dispatcher; nothing was started
placing      a dispatcher asks the cluster for its gang   the dispatcher; a half-made gang is found by name and adopted or closed
starting     ranks exist, groups form, model is built     the gang's events; the gang continues without the control plane
running      steps happen                                 the gang's events; the gang continues without the control plane
recovering   an attempt was lost, the next is prepared    the dispatcher; the job's checkpoints are on storage
pausing      requested to save and end, by a user         the gang's events
paused       saved, holds no device                       a user
resharding  requested to save and end, to continue in    the gang's events
             another layout, by a user or to grow
stopping     requested to save and end: its time is up    the gang's events
cancelling   requested to stop                            the dispatcher, once the gang is gone
succeeded    all steps done, results stored               final
failed       ended by an error, which is stored           final
cancelled    ended by a user                              final
"""

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESHARDING = "resharding"
    STOPPING = "stopping"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_S = State

#: from → to
MOVES: dict[State, frozenset[State]] = {
    _S.QUEUED: frozenset({_S.PLACING, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.PLACING: frozenset({_S.STARTING, _S.QUEUED, _S.PAUSING, _S.RESHARDING, _S.STOPPING, _S.CANCELLING, _S.FAILED}),
    _S.STARTING: frozenset(
        {
            _S.RUNNING,
            _S.RECOVERING,
            _S.PAUSING,
            _S.RESHARDING,
            _S.STOPPING,
            _S.CANCELLING,
            _S.SUCCEEDED,
            _S.FAILED,
        }
    ),
    _S.RUNNING: frozenset(
        {_S.SUCCEEDED, _S.FAILED, _S.RECOVERING, _S.PAUSING, _S.RESHARDING, _S.STOPPING, _S.CANCELLING}
    ),
    # succeeded: a gang that was repaired after its last step trains no further step, so it never reports that it runs
    _S.RECOVERING: frozenset(
        {
            _S.QUEUED,
            _S.STARTING,
            _S.RUNNING,
            _S.PAUSING,
            _S.RESHARDING,
            _S.STOPPING,
            _S.CANCELLING,
            _S.SUCCEEDED,
            _S.FAILED,
        }
    ),
    _S.PAUSING: frozenset({_S.PAUSED, _S.SUCCEEDED, _S.FAILED, _S.CANCELLING}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.RESHARDING: frozenset({_S.QUEUED, _S.PAUSING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLING}),
    _S.STOPPING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLING}),
    _S.CANCELLING: frozenset({_S.CANCELLED, _S.SUCCEEDED, _S.FAILED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}

FINAL: frozenset[State] = frozenset(state for state, moves in MOVES.items() if not moves)

#: States in which a gang may hold devices.
HOLDING: frozenset[State] = frozenset(
    {_S.PLACING, _S.STARTING, _S.RUNNING, _S.RECOVERING, _S.PAUSING, _S.RESHARDING, _S.STOPPING, _S.CANCELLING}
)
