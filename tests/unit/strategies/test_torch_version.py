"""Private functions of torch are refused where they were not tried, and used only until torch has public ones."""

import re
from pathlib import Path

import pytest
import torch
import torch.compiler.config
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
from harness.house import ROOT

from shardyard.strategies import torch_version
from shardyard.strategies.activation_memory import checkpointing, selective
from shardyard.strategies.activation_memory.state_file import StateFile
from shardyard.strategies.data_parallel.shards_on_disk import ShardsOnDisk
from shardyard.strategies.dispatch_mode import DispatchMode
from shardyard.strategies.process_groups import group_named

#: Owner of a public name that would replace a private one → the name, and the file that would use it.
PUBLIC = [
    (torch.utils, "python_dispatch", "strategies/dispatch_mode.py"),
    (torch.utils, "TorchDispatchMode", "strategies/dispatch_mode.py"),
    (torch.overrides, "TorchDispatchMode", "strategies/dispatch_mode.py"),
    (torch.Tensor, "version", "strategies/activation_memory/version_counter.py"),
    (torch.autograd.graph, "will_engine_execute_node", "strategies/tensor_parallel/linear.py"),
    (torch.autograd.graph, "will_execute", "strategies/tensor_parallel/linear.py"),
    (dist, "resolve_process_group", "strategies/process_groups.py"),
    (dist, "functional_collectives", "strategies/tensor_parallel/functional_collectives.py"),
    (dist, "functional", "strategies/tensor_parallel/functional_collectives.py"),
    (torch.distributed.tensor, "manual_seed", "strategies/tensor_parallel/random_state.py"),
    (dist, "dump_fr_trace_json", "workers/recorder_dumps.py"),
    (dist, "flight_recorder_entries", "workers/recorder_dumps.py"),
    (torch.distributed.pipelining, "PipelineScheduleRuntime", "strategies/pipeline_parallel/given_order.py"),
    (torch.distributed.pipelining.schedules, "PipelineScheduleRuntime", "strategies/pipeline_parallel/given_order.py"),
    (torch.distributed.pipelining.schedules, "batch_p2p", "strategies/pipeline_parallel/p2p_trace.py"),
    (torch.distributed.tensor.parallel.ParallelStyle, "apply", "workers/models/tensor_plan.py"),
    (torch.nn.functional, "scaled_dot_product_attention_with_lse", "strategies/context_parallel/attention_kernels.py"),
    (torch.ops.aten, "scaled_dot_product_flash_attention", "strategies/context_parallel/attention_kernels.py"),
    (torch.compiler.config, "donated_buffer", "strategies/compile.py"),
    (torch, "foreach_norm", "strategies/grad_clip.py"),
    (torch, "foreach_mul_", "strategies/grad_clip.py"),
    (torch.UntypedStorage, "use_count", "strategies/data_parallel/shared_gradients.py"),
    (torch.distributed.fsdp, "FSDPParam", "strategies/data_parallel/shards_on_disk.py"),
    (torch.distributed.fsdp.FSDPModule, "accumulate_gradients", "strategies/data_parallel/fsdp_sums.py"),
    (torch.distributed.fsdp, "FSDPParamGroup", "strategies/data_parallel/shards_on_disk.py"),
    (torch.autograd.graph, "current_graph_task_id", "workers/step_recorder.py"),
    (torch.cuda.memory, "record_memory_history", "workers/torch_recordings.py"),
    (torch.autograd.profiler, "profiler_enabled", "workers/torch_recordings.py"),
    (torch.ops.aten, "scaled_dot_product_efficient_attention", "workers/dry_run/fake_attention.py"),
    (torch, "FakeTensorMode", "workers/dry_run/fake_tensors.py"),
    (dist, "FakeProcessGroup", "workers/dry_run/fake_tensors.py"),
    (torch.distributed.fsdp, "chunk_with_empty", "workers/dry_run/fake_shards.py"),
    (torch.utils, "pytree", "workers/dry_run/memory_meter.py"),
    (torch.autograd.graph, "current_graph_task_id", "workers/dry_run/memory_meter.py"),
    (type(torch.ops.aten.add.Tensor), "schema", "workers/dry_run/operators.py"),
]
#: What it replaces is torch's use of its own function, for which no public name would stand.
NO_NAME = {"workers/dry_run/no_compiler.py"}


@pytest.mark.parametrize(("owner", "name", "file"), PUBLIC, ids=lambda value: value if isinstance(value, str) else "")
def test_torch_has_no_public_name_yet(owner: object, name: str, file: str) -> None:
    assert not hasattr(owner, name), f"the public API has come: use it. {name}, in {file}"


def test_every_file_with_a_private_function_waits_for_a_public_name() -> None:
    page = (ROOT / "docs" / "design" / "private-apis.md").read_text()
    using = re.findall(r"^\| `([\w/]+\.py)` \|", page.partition("\n## Ray\n")[0], re.MULTILINE)
    assert set(using) == {file for _, _, file in PUBLIC} | NO_NAME


def test_attention_still_returns_no_log_sum_exp() -> None:
    said = torch.nn.functional.scaled_dot_product_attention.__doc__ or ""
    assert said and not {"return_lse", "return_aux"} & set(said.replace("=", " ").replace(",", " ").split()), (
        "the public API has come: use it. strategies/context_parallel/attention_kernels.py"
    )


def test_the_installed_torch_was_tried() -> None:
    assert torch_version.tried()
    torch_version.require("anything")


def test_another_torch_is_refused_where_nothing_public_does_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    with pytest.raises(RuntimeError, match=r"_python_dispatch is private to torch and was tried on torch 1\.0\.x only"):
        DispatchMode()
    with pytest.raises(RuntimeError, match="_resolve_process_group"):
        group_named("world")
    with pytest.raises(RuntimeError, match="unshard is private to torch"):
        ShardsOnDisk(StateFile(tmp_path))


def test_another_torch_recomputes_by_its_own_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(checkpointing._selective()[0], selective._First)
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    weight = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    x = torch.ones(4, 6, dtype=torch.float64)

    def block(x: torch.Tensor) -> torch.Tensor:
        return x.mm(weight).tanh().mm(weight).sin()

    (once,) = torch.autograd.grad(block(x).sum(), [weight])
    out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, context_fn=checkpointing._selective)
    (again,) = torch.autograd.grad(out.sum(), [weight])
    assert torch.equal(again, once)
