"""What the samples of system metrics cost a node: processor time of each sample of a rank, and of a node.

    python benchmarks/system_samples.py [--ranks 8] [--children 8] [--samples 500]

Each rank's tree is a real process with this number of children that sleep, such as those of a data loader. The cost is that of all
ranks and one node every five seconds, as a share of one core, without the GPUs. It is printed as the median over ten parts of the samples.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "typings"))

from shardyard.workers.messages.event import to_json  # noqa: E402
from shardyard.workers.rank.node_use import NodeUse  # noqa: E402
from shardyard.workers.rank.system_sampler import SystemSampler  # noqa: E402

EVERY_S, PARTS = 5.0, 10
TREE = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=0) for _ in range(int(sys.argv[1]))]
print("started", flush=True)
for child in children: child.wait()
"""


def seconds(sample: Callable[[], object], count: int) -> list[float]:
    """Processor seconds of one call, as the mean of each part."""
    found = []
    for _ in range(PARTS):
        began = time.process_time()
        for _ in range(count // PARTS):
            sample()
        found.append((time.process_time() - began) / (count // PARTS))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--children", type=int, default=8)
    parser.add_argument("--samples", type=int, default=500)
    given = parser.parse_args()
    command = [sys.executable, "-c", TREE, str(given.children)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        rank = SystemSampler(lambda: process.pid, None, None)
        node = SystemSampler(lambda: None, None, NodeUse(Path.cwd()))
        costs = {
            "rank": seconds(lambda: to_json(rank.sample()), given.samples),
            "node": seconds(lambda: to_json(node.sample()), given.samples),
        }
        assert process.stdin is not None
        process.stdin.close()
    for name, values in costs.items():
        spread = f"{1000 * min(values):.2f} to {1000 * max(values):.2f}"
        print(f"a sample of a {name}: {1000 * statistics.median(values):.2f} ms ({spread})")
    all_of_it = given.ranks * statistics.median(costs["rank"]) + statistics.median(costs["node"])
    print(f"a node with {given.ranks} ranks: {100 * all_of_it / EVERY_S:.3f}% of a core")


if __name__ == "__main__":
    main()
