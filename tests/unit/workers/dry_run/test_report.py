import pytest

from shardyard.workers.dry_run.report import Collectives, DryRun, HostSync, PhasePeak
from shardyard.workers.messages import json_codec

REPORT = DryRun(
    rank=1,
    world_size=4,
    layout="data 4",
    parameters=10,
    state_bytes=20,
    peak_bytes=40,
    peak_phase="update",
    host_bytes=8,
    by_kind={"parameters": 30, "optimizer": 10},
    phases=(PhasePeak("update", 40, "aten::mul", "workers/trainer/loop.py:1"),),
    host_syncs=(HostSync("strategies/grad_clip.py:33", "read from device", 1),),
    collectives=(Collectives("data", "all_reduce", 1, 12.0),),
    sequence={"0,1": "ab"},
    validation_syncs=(HostSync("strategies/expert_parallel.py:1", "copy to host", 4),),
)


def test_a_report_crosses_to_another_process_unchanged() -> None:
    assert json_codec.loads(DryRun, json_codec.dumps(REPORT)) == REPORT


def test_another_version_of_a_report_is_refused() -> None:
    with pytest.raises(ValueError, match="peak"):
        json_codec.loads(DryRun, json_codec.dumps(REPORT).replace(b"peak_phase", b"peak_at"))
