from shardyard.service.queries.incidents import _summary
from shardyard.service.schemas.incident import Repair
from shardyard.workers.messages.event import IncidentEvent


def test_a_lost_node_is_one_paragraph_with_its_ranks() -> None:
    lost = IncidentEvent(cause="node_lost", step=17, message="node f8d3ab314835 took ranks 2, 3 along")
    assert _summary(lost, Repair(generation=2, restored=17, step=18, seconds=6.24, spares=[])) == (
        "A node was lost after step 17: node f8d3ab314835 took ranks 2, 3 along. The gang was repaired in place as "
        "generation 2 and trained again 6.2 s later, from step 17, which was in memory."
    )
