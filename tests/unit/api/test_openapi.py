"""The description from which the dashboard's types are generated is the one that the API serves."""

import json
import subprocess
import sys

from harness.patience import PATIENCE_S


def test_it_is_printed_without_a_database_or_a_cluster() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "shardyard.api.openapi"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    document = json.loads(printed.stdout)
    assert document["paths"]["/v1/jobs"]["post"]["operationId"] == "submitJob"
    assert document["components"]["schemas"]["JobSpec"]["properties"].keys() >= {"name", "train"}
