"""`python -m shardyard.workers.dry_run`: reads a request as JSON from the standard input and prints the report of one rank as JSON.

The request: `{"train": …, "vocab": 256, "rank": 0}`. A process of its own, because the fake device must come before torch.
"""

import json
import sys

from ...strategies.layout import Refusal
from ..messages import json_codec
from ..spec import TrainSpec
from . import fake_cuda


def main() -> int:
    request = json.load(sys.stdin)
    train = TrainSpec.model_validate(request["train"])
    try:
        fake_cuda.load()
        from . import fake_streams
        from .one_step import dry_run

        # After all imports: torch compares what it finds in its namespace while it is imported.
        fake_streams.install("NVIDIA H100 80GB HBM3", (9, 0))
        report = dry_run(train, int(request.get("vocab", 256)), int(request.get("rank", 0)))
    except Refusal as refusal:
        sys.stderr.write(f"{refusal.field}: {refusal.message} {refusal.remedy}\n")
        return 2
    except fake_cuda.NoFakeDevice as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write(json_codec.dumps(report).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
