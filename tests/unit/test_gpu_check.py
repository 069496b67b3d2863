"""The script behind `make gpu-check`, on the CPU and with nothing but torch, numpy and pydantic to import."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

ALONE = """
import runpy, sys

REST = set("ray yaml fastapi starlette sqlalchemy alembic typer rich psutil safetensors tokenizers httpx2 grpc".split())


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REST:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
sys.argv = ["gpu.py", *sys.argv[1:]]
runpy.run_path("benchmarks/gpu.py", run_name="__main__")
"""


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": "typings", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", ALONE, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_the_check_needs_torch_numpy_and_pydantic_alone() -> None:
    small = ["--presets", "nano", "--micro-batch", "2", "--seq-len", "64", "--steps", "8"]
    done = check("--device", "cpu", *small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 9 and "FAIL" not in done.stdout


def test_without_a_gpu_it_says_so() -> None:
    done = check()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "No CUDA device here: nothing was checked.\n"
