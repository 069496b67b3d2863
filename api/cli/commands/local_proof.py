"""The trainings of a certificate on this machine, and what their comparison says."""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import ValidationError

from ....service.jobs import rank_environment
from ....service.queries.resources import comm_volume, memory_usage
from ....service.schemas.certificate import Certificate, NumbersCompared, Reference
from ....service.spec import JobSpec
from ....strategies.cost.estimate import Setting, Unknown
from ....strategies.layout import Refusal
from ....version import __version__
from ....workers.certificate.comparison import compare, largest_relative
from ....workers.certificate.exact_spec import alone, exact
from ....workers.certificate.own_code import digest
from ....workers.certificate.references import Extra, check_comparable, extra_of, with_blocks
from ....workers.certificate.shrunk_spec import Shrunk, shrunk
from ....workers.certificate.training import Training, trained
from ....workers.cost_inputs import setting_of
from ....workers.program.captured_run import RanksFailed
from ....workers.spec import TrainSpec
from ...errors import InvalidParameter
from ...given_path import given_path
from ..terminal.screen import Screen
from .dry_run import vocabulary_here
from .local_run import variables_of


def proven(job: JobSpec, steps: int, whole: bool, folder: Path, screen: Screen) -> Certificate:
    """Train on the layout and in one process, and compare.

    Raises InvalidParameter and MissingFile for what cannot be trained here, and InvalidSpec for variables that no job may set.
    """
    rank_environment.check(job)
    given, env = job.train, variables_of(job)
    vocab = vocabulary_here(given)
    small, code = _small(given, vocab, whole), _digest(given)
    spec = exact(small.train, steps)
    for change in small.changes:
        screen.say(f"Smaller here: {change}")
    found = _trained(spec, "layout", folder, screen, env)
    plain = expected = _trained(alone(spec), "alone", folder, screen, env)
    extra = extra_of(spec.layout)
    if extra is not None:
        expected = _trained(with_blocks(spec, found.plan), "reference", folder, screen, env, extra)
    comparisons = compare(found, expected)
    setting = _setting(spec, vocab)
    return Certificate(
        name=job.name,
        made_at=time.time(),
        equal=all(one.equal for one in comparisons),
        layout=str(spec.layout),
        world_size=spec.layout.world_size,
        steps=steps,
        parameters=found.plan.get("parameters"),
        losses=list(found.losses),
        losses_alone=list(expected.losses),
        reference=None if extra is None else _reference(extra, found, plain),
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
    """Of the folder with the user's own modules, before they are imported. Raises InvalidParameter, MissingFile."""
    try:
        return None if given.model.code is None else digest(given_path(given.model.code, "train.model.code"))
    except Refusal as refusal:
        raise InvalidParameter(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _trained(
    spec: TrainSpec, name: str, folder: Path, screen: Screen, env: Mapping[str, str], extra: Extra | None = None
) -> Training:
    """On the spec's ranks, or with `extra` in one process that does this too. Raises InvalidParameter if a rank failed.

    `env`: the job's own variables.
    """
    ranks, what = (1, f"one process that {extra}") if extra else (spec.layout.world_size, str(spec.layout))
    screen.say(f"{spec.steps} steps in float64 on {ranks} rank{'s' if ranks > 1 else ''}: {what}")
    try:
        return trained(spec, name, folder, reference=extra is not None, env=env)
    except RanksFailed as error:
        which = "the layout" if name == "layout" else "one process"
        message = f"The training of {which} ended with status {error.status}: {error.cause[:500]}"
        remedy = "See the whole output with: shardyard run --local SPEC"
        raise InvalidParameter(message, field="train", remedy=remedy) from None


def _reference(extra: Extra, found: Training, plain: Training) -> Reference:
    """What `extra` changes."""
    difference = largest_relative(found.losses, plain.losses)
    return Reference(extra=extra, losses_without=list(plain.losses), difference=difference)


def _setting(spec: TrainSpec, vocab: int) -> Setting | Unknown:
    """The inputs of the formulas, or why there are none."""
    try:
        return setting_of(spec, vocab, "cpu")
    except (Refusal, ValidationError) as error:
        return Unknown(str(error))
