"""How persistently each kind of checkpoint is saved. Saves with several ranks: tests/parity/test_checkpointing.py."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies.layout import Layout
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.checkpoint.retention import complete, folder
from shardyard.workers.data_spec import DataSpec
from shardyard.workers.huggingface.export import Exported
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.trainer.callbacks import checkpointing
from shardyard.workers.trainer.callbacks.checkpointing import Checkpointing
from shardyard.workers.trainer.instruments import Instruments

LAST = 8


class Saving:
    """A run of eight steps on one rank, which saves every second one. `failures`: writes that the disk refuses from now on."""

    def __init__(self, root: Path, final: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.failures, self.writes = root, 0, 0
        self.incidents: list[tuple[str, str, int]] = []
        self._write = LocalFolder.write

        def write(*given: Any) -> None:
            self.write(*given)

        monkeypatch.setattr(LocalFolder, "write", write)
        self.callback = Checkpointing(*self.given(Layout(), final))

    def given(self, layout: Layout, final: bool = True, export: bool = False) -> Any:
        """The arguments of the callback in a run of this layout, of which this is the only rank."""
        about = SimpleNamespace(every=2, keep=9, final=final, export=export)
        spec = SimpleNamespace(checkpoint=about, steps=LAST, layout=layout, data=DataSpec(documents="packed"))
        mesh, run = make_mesh(Layout(), torch.device("cpu")), SimpleNamespace(checkpoints=str(self.root))
        parts = SimpleNamespace(spec=spec, run=run, mesh=mesh, state_file=None, architecture=None)
        shards = [ParamShard("a", (3,), (0,), torch.randn(3), frozenset())]
        reporter = SimpleNamespace(incident=lambda *one: self.incidents.append(one), of_job=lambda _: None)
        state = SimpleNamespace(newest_checkpoint=None, owes_checkpoint=False)
        return parts, shards, state, lambda step: {"step": step}, reporter, Instruments()

    def write(self, *given: Any) -> None:
        self.writes += 1
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self._write(*given)

    def ends(self, step: int, stop: StopRequest) -> None:
        """Finish `step`, as the loop does, and the run after it."""
        record: Any = SimpleNamespace(step=step, stats=SimpleNamespace(stop=stop))
        self.callback.after_step(record)
        self.callback.finish(step, stop if step < LAST else StopRequest.NO)

    @property
    def saved(self) -> list[Any]:
        return complete(LocalFolder(str(self.root)))


@pytest.fixture
def saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Saving]:
    """By parameter: whether the last step is always saved."""
    for name in ("LAST_BACKOFF_S", "STOP_BACKOFF_S"):
        monkeypatch.setattr(checkpointing, name, (0.0,) * len(getattr(checkpointing, name)))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Saving(tmp_path, getattr(request, "param", False), monkeypatch)
    dist.destroy_process_group()


@pytest.mark.parametrize("step", [3, pytest.param(4, id="a step that is saved anyway")])
def test_the_checkpoint_for_which_a_run_stops_is_tried_for_minutes(saving: Saving, step: int) -> None:
    saving.failures = 8
    saving.ends(step, StopRequest.SAVE)
    assert saving.saved == [folder(LocalFolder(str(saving.root)), step)]
    assert saving.incidents == [] and saving.writes == 9, "all tries are of one save"


def test_a_run_that_stops_without_its_checkpoint_says_that_steps_are_lost(saving: Saving) -> None:
    saving.failures = 100
    saving.ends(4, StopRequest.SAVE)
    ((cause, message, step),) = saving.incidents
    assert (cause, step, saving.saved) == ("checkpoint_failed", 4, [])
    assert "No space left" in message and "after 9 tries, and loses the steps since its newest checkpoint." in message
    assert "training continues" not in message


def test_a_run_that_stops_waits_for_the_checkpoint_of_its_own_step(
    saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang in the wait, or an error, is one of the step at which the job is."""
    beats: list[tuple[str, int]] = []
    given = saving.given(Layout())
    monkeypatch.setattr(given[-1].heartbeat, "update", lambda *beat: beats.append(beat))
    saving.callback = Checkpointing(*given)
    saving.ends(3, StopRequest.SAVE)
    assert {beat for beat in beats if beat[0] == "checkpoint"} == {("checkpoint", 3)}


def test_a_scheduled_checkpoint_has_one_try(saving: Saving) -> None:
    saving.failures = 1
    saving.ends(4, StopRequest.STOP)
    assert saving.saved == [] and saving.writes == 1
    assert [(step, "training continues" in message) for _, message, step in saving.incidents] == [(4, True)]


def test_a_stop_at_the_last_step_leaves_its_scheduled_checkpoint(saving: Saving) -> None:
    """The run has no steps left, so that it does not stop early."""
    saving.ends(LAST, StopRequest.SAVE)
    assert saving.saved == [folder(LocalFolder(str(saving.root)), LAST)] and saving.incidents == []


@pytest.mark.parametrize("saving", [True], indirect=True)
def test_the_last_checkpoint_has_three_tries(saving: Saving) -> None:
    saving.failures = 2
    saving.ends(LAST, StopRequest.NO)
    assert saving.saved == [folder(LocalFolder(str(saving.root)), LAST)] and saving.writes == 3


def test_an_export_waits_for_no_worker_with_a_clock_of_its_own(saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers 1 and above may be gone by then, and nothing ends a wait for them."""
    layout = Layout.model_validate({"data": 2, "parameter_server": {"servers": 1, "mode": "stale", "bound": 2}})
    callback = Checkpointing(*saving.given(layout, export=True))
    monkeypatch.setattr(checkpointing, "verify_together", lambda *_: pytest.fail("it waits for the other workers"))
    callback.finish(LAST, StopRequest.NO)
    assert [cause for cause, _, _ in saving.incidents] == ["export_failed"], "there is no model to export"


def test_a_run_that_dies_while_it_removes_an_earlier_export_leaves_none_that_counts(
    saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = saving.root / f"export-{LAST:08d}"
    earlier.mkdir()
    (earlier / checkpointing.CONFIG).touch()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    saving.callback = Checkpointing(*saving.given(Layout(), export=True))
    with pytest.raises(KeyboardInterrupt):
        saving.callback.finish(LAST, StopRequest.NO)
    assert not earlier.exists()


def test_a_run_whose_export_lacks_the_tokenizer_writes_so_into_its_log(
    saving: Saving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Exported("out", 1, 1, 4, "tokenizer.json does not exist.")
    monkeypatch.setattr(checkpointing, "export", lambda *_, **__: made)
    saving.callback = Checkpointing(*saving.given(Layout(), export=True))
    saving.callback.finish(LAST, StopRequest.NO)
    assert saving.incidents == [] and capsys.readouterr().err == "shardyard: tokenizer.json does not exist.\n"


def test_a_checkpoint_says_how_its_model_has_read_documents(saving: Saving) -> None:
    saving.ends(4, StopRequest.SAVE)
    training = read(folder(LocalFolder(str(saving.root)), 4)).training
    assert (training["tokenizer"], training["documents"]) == ("bytes", "packed")
