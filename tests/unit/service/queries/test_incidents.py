from shardyard.service.queries.incidents import _summary
from shardyard.service.schemas.incident import Repair
from shardyard.workers.messages.event import IncidentEvent


def test_a_lost_node_is_one_paragraph_with_its_ranks() -> None:
    lost = IncidentEvent(cause="node_lost", step=17, message="node f8d3ab314835 took ranks 2, 3 along")
    assert _summary(lost, Repair(generation=2, restored=17, step=18, seconds=6.24, spares=[])) == (
        "A node was lost after step 17: node f8d3ab314835 took ranks 2, 3 along. The gang was repaired in place as "
        "generation 2 and trained again 6.2 s later, from step 17, which was in memory."
    )


def test_a_command_starts_again() -> None:
    lost = IncidentEvent(cause="rank_lost", rank=1, message="the trainer was killed by SIGKILL")
    assert _summary(lost, Repair(generation=2, restored=None, step=0, seconds=0.31, spares=[])).endswith(
        " The gang was repaired in place as generation 2 and started its command again 0.3 s later."
    )
