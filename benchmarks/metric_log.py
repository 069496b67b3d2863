"""What `shardyard.log` costs a rank: 200 metrics at 50 steps per second, in its program and in its trainer process.

    python benchmarks/metric_log.py [--rounds 5]

Each round runs one program twice, with the call and without it; both compute the values in every step. The cost is the difference of
their processor times, as a share of one core. The median, minimum and maximum over the rounds are printed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "typings"))

from shardyard.workers.messages.event import MetricsEvent, to_json  # noqa: E402
from shardyard.workers.messages.metric_block import MetricBlock  # noqa: E402
from shardyard.workers.program.agents import listening  # noqa: E402
from shardyard.workers.program.report_socket import SOCKET  # noqa: E402

STEPS, RATE, NAMES = 500, 50, 200
PROGRAM = f"""
import sys, time, shardyard
names = [f"train/metric{{number}}" for number in range({NAMES})]
shardyard.log({{"first": 1}})
time.sleep(1)
processor, began = time.process_time(), time.monotonic()
for step in range({STEPS}):
    values = {{name: 0.123456789 * (step + number) for number, name in enumerate(names)}}
    if sys.argv[1] == "with":
        shardyard.log(values, step=step)
    time.sleep(max(0, began + (step + 1) / {RATE} - time.monotonic()))
time.sleep(1)
print(time.process_time() - processor)
"""


def seconds(how: str) -> tuple[float, float]:
    """Processor seconds of the program and of the trainer process."""

    def take(blocks: list[MetricBlock], restarts: int) -> None:
        to_json(MetricsEvent(rank=0, generation=1, restarts=restarts, blocks=tuple(blocks)))

    with listening(take) as agents:
        began = time.process_time()
        command, env = [sys.executable, "-c", PROGRAM, how], {**os.environ, SOCKET: agents.name}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
        agents.finish()
        return float(done.stdout), time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    costs: list[tuple[float, float]] = []
    for _ in range(rounds):
        with_log, without = seconds("with"), seconds("without")
        costs.append((with_log[0] - without[0], with_log[1] - without[1]))
    for name, values in zip(("program", "trainer process"), zip(*costs, strict=True), strict=True):
        shares = [100 * value * RATE / STEPS for value in values]
        print(f"{name:16} {statistics.median(shares):.2f}% of a core ({min(shares):.2f} to {max(shares):.2f})")


if __name__ == "__main__":
    main()
