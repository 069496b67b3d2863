"""The API and the planner ask models for their size and corpora for their errors; they start without torch."""

import subprocess
import sys

import pytest

MODULES = [
    "storage.s3_folder",
    "checkpoint.retention",
    "models.presets",
    "models.flops",
    "models.hf_config",
    "data.errors",
    "data.corpus",
    "data.tokenizer",
    "data.shuffle",
    "data.sample_seeds",
    "data.position",
    "data.token_cache",
    "data.unigram_baseline",
]


@pytest.mark.parametrize("module", MODULES)
def test_imports_no_torch(module: str) -> None:
    code = f"import sys, shardyard.workers.{module}; sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
