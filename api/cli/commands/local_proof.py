"""The two trainings of a certificate on this machine, and what their comparison says."""

import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import ValidationError

from ....service.queries.resources import comm_volume, memory_usage
from ....service.schemas.certificate import Certificate, NumbersCompared
from ....strategies.cost.estimate import Setting, Unknown
from ....strategies.layout import Refusal
from ....version import __version__
from ....workers.certificate.comparison import compare
from ....workers.certificate.exact_spec import alone, check_comparable, exact
from ....workers.certificate.own_code import digest
from ....workers.certificate.shrunk_spec import Shrunk, shrunk
from ....workers.certificate.training import Training, trained
from ....workers.cost_inputs import setting_of
from ....workers.program.captured_run import RanksFailed
from ....workers.spec import TrainSpec
from ...errors import InvalidParameter
from ..terminal.screen import Screen
from .dry_run import vocabulary_here


def proven(name: str, given: TrainSpec, steps: int, whole: bool, folder: Path, screen: Screen) -> Certificate:
    """Train twice, and compare. Raises InvalidParameter for what cannot be trained here."""
    vocab = vocabulary_here(given)
    small, code = _small(given, vocab, whole), _digest(given)
    spec = exact(small.train, steps)
    for change in small.changes:
        screen.say(f"Smaller here: {change}")
    runs = []
    for one, folder_name in ((spec, "layout"), (alone(spec), "alone")):
        ranks = one.layout.world_size
        screen.say(f"{steps} steps in float64 on {ranks} rank{'s' if ranks > 1 else ''}: {one.layout}")
        runs.append(_trained(one, folder_name, folder))
    found, expected = runs
    comparisons = compare(found, expected)
    setting = _setting(spec, vocab)
    return Certificate(
        name=name,
        made_at=time.time(),
        equal=all(one.equal for one in comparisons),
        layout=str(spec.layout),
        world_size=spec.layout.world_size,
        steps=steps,
        parameters=found.plan.get("parameters"),
        losses=list(found.losses),
        losses_alone=list(expected.losses),
        numbers=[NumbersCompared(**asdict(one), equal=one.equal) for one in comparisons],
        traffic=comm_volume(setting, found.probe.get("traffic") or {}),
        memory=memory_usage(setting, found.probe.get("memory") or {}, None),
        changes=list(small.changes),
        given=given.model_dump(mode="json", by_alias=True),
        trained=spec.model_dump(mode="json", by_alias=True),
        code=code,
        versions={"shardyard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        machine=f"{platform.machine()}, {os.cpu_count()} CPUs",
    )


def _small(given: TrainSpec, vocab: int, whole: bool) -> Shrunk:
    """The spec, made smaller where it is large."""
    try:
        given.refuse_undecided()
        check_comparable(given)
        return Shrunk(given) if whole else shrunk(given, given.architecture(vocab))
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _digest(given: TrainSpec) -> str | None:
    """Of the folder with the user's own modules, before they are imported."""
    try:
        return None if given.model.code is None else digest(Path(given.model.code))
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _trained(spec: TrainSpec, name: str, folder: Path) -> Training:
    try:
        return trained(spec, name, folder)
    except RanksFailed as error:
        which = "one process" if name == "alone" else "the layout"
        message = f"The training of {which} ended with status {error.status}: {error.cause[:500]}"
        remedy = "See the whole output with: shardyard run --local SPEC"
        raise InvalidParameter(message, field="train", remedy=remedy) from None


def _setting(spec: TrainSpec, vocab: int) -> Setting | Unknown:
    """The inputs of the formulas, or why there are none."""
    try:
        return setting_of(spec, vocab, "cpu")
    except (Refusal, ValidationError) as error:
        return Unknown(str(error))
