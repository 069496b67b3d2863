"""Times a small step of a spec on one device of this machine: python -m shardyard.workers.advisor TRAIN --vocab N [--device cpu]

TRAIN is a file with the `train` part of a spec, as JSON. Prints what was measured as one line of JSON.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from ..spec import TrainSpec
from ..world import formed_by_torchrun
from .timed_step import measured


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shardyard.workers.advisor", description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("--vocab", type=int, required=True, help="size of the tokenizer")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    train = TrainSpec.model_validate_json(options.train.read_text())
    architecture = train.architecture(options.vocab)
    if architecture is None:
        parser.error("a module of your own has no sizes that the spec says")
    with formed_by_torchrun(options.device) as device:
        found = measured(train, architecture, device)
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without the destructors of torch's threads
