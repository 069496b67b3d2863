"""What Ray's GCS holds of a control plane's own cluster: the tables that Ray's state API (`ray list actors --detail`) shows.

Read without the state API's server, which is a part of Ray's dashboard, and that head has none. It keeps no events of tasks either.
"""

import os
import subprocess
import sys

from shardyard.service.cluster.ray_head import Head

from .control_plane import ControlPlane
from .patience import PATIENCE_S

_SCRIPT = """
import sys
from ray._raylet import GcsClientOptions, GlobalStateAccessor
state = GlobalStateAccessor(GcsClientOptions.create(sys.argv[1], None, True, True))
assert state.connect()
tables = [state.get_actor_table(None, None), state.get_worker_table(), state.get_job_table(), state.get_node_table()]
tables += [state.get_placement_group_table(), state.get_task_events()]
for row in (row for table in tables for row in table):
    sys.stdout.buffer.write((row if isinstance(row, bytes) else repr(row).encode()) + b"\\n")
"""


def ray_state(plane: ControlPlane) -> bytes:
    """The rows of all tables: actors, workers, jobs, nodes, placement groups, and events of tasks."""
    head = Head(plane.data)
    record = head.ensure()
    assert record.address is not None
    command = [sys.executable, "-c", _SCRIPT, record.address]
    done = subprocess.run(
        command, env={**os.environ, **head.environment()}, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
