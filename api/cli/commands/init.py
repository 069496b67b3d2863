"""`shardyard init`: writes a commented spec after a few questions. It never overwrites a file without --force."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ....service.errors import ShardyardError
from ....service.jobs.validation import check_layout
from ....service.spec_text import flow
from ....workers.models.presets import PRESETS
from ... import spec_file
from ...errors import InvalidDocument, InvalidParameter
from ...given_path import given_path
from ...http.validation_errors import read_training_spec
from ...spec_document import parse
from ..terminal.screen import Screen
from . import init_command


@dataclass(frozen=True)
class Answers:
    """The answers; the defaults train a small Llama on a laptop."""

    name: str = "my-job"
    family: str = "llama"
    preset: str = "nano"
    files: str = ""
    data: int = 2
    tensor: int = 1
    pipeline: int = 1
    steps: int = 200
    global_batch: int = 32


_NAME = "Name of the job (lower-case letters, digits, dashes)"
_TEMPLATE = """\
# Train it with:  shardyard run {path}
# Every field:    shardyard schema
name: {name}
train:
  model:
    family: {family}                # llama, gpt2, moe; or your own: import: "module:factory"; or from: ./a-hugging-face-folder
    preset: {preset}                # any of its numbers may be changed: layers: 8
  data:
{data_lines}
    seq_len: 128                    # tokens per sequence
  layout:                           # {world} ranks = data × tensor × pipeline (× context)
    data: {data}                         # replicas; {{ min: 1, max: {data} }} takes as many as there are devices for
    zero: 0                         # 1 cuts the optimizer's state over the replicas, 2 also gradients, 3 also parameters
    tensor: {tensor}                       # ranks that share each matrix
    pipeline: {pipeline}                     # ranks that share the blocks
  precision: auto                   # bf16 on GPUs, fp32 on CPUs
  optimizer: {{ lr: 3.0e-3, weight_decay: 0.1, clip_norm: 1.0 }}
  schedule: {{ name: cosine, warmup: 20 }}
  steps: {steps}
  global_batch: {global_batch}                  # sequences per step over all ranks; the layout does not change the result
  eval: {{ every: 100 }}
  checkpoint: {{ every: 100, keep: 2 }}
resources: {{ device: auto }}         # cpu, cuda
policy: {{ max_restarts: 3 }}         # new attempts after faults of machines
labels: {{}}                          # such as team: search
"""


def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File to write.")] = Path("job.yaml"),
    command: Annotated[
        str | None,
        typer.Option(
            "--command", help="Write a spec for a program of your own, which this runs, as in: 'python train.py'."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions; use the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented spec after a few questions: of a training, or with --command of a program of your own."""
    screen = Screen()
    path = given_path(path, "PATH")
    _refuse_overwriting(path, ask=not yes, force=force)
    if command is None:
        text = written(Answers() if yes else _asked(screen, path), path)
    else:
        name, ranks = ("my-job", 2) if yes else (_ask(_NAME, "my-job"), _ask("Number of ranks", 2))
        text, warnings = init_command.written(name, command, ranks, path)
        screen.warnings(warnings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        remedy = "Name another file with: shardyard init PATH"
        raise InvalidParameter(f"{path}: {error.strerror or 'cannot be written'}.", remedy=remedy) from None
    screen.out.print(f"Wrote {path}.", markup=False)
    screen.hint(f"{'Train' if command is None else 'Run'} it with: shardyard run {path}")


def written(answers: Answers, path: Path) -> str:
    """The text of a spec that passed validation. Raises `ShardyardError`."""
    world = answers.data * answers.tensor * answers.pipeline
    given = vars(answers) | {"name": flow(answers.name), "data_lines": _data_lines(answers.files)}
    text = _TEMPLATE.format(**given, path=path, world=world)
    spec = read_training_spec(spec_file.absolute(parse(text.encode(), "yaml"), path.parent))
    check_layout(spec.train, 256)
    return text


def _data_lines(files: str) -> str:
    if not files:
        return (
            "    source: python-stdlib           # needs no download; of your own: source: text, files: [corpus/*.txt]"
        )
    return f"    source: text\n    files: {flow([files])}"


def _asked(screen: Screen, path: Path) -> Answers:
    """Answers that fit together; a contradiction is printed and asked again."""
    answers = Answers()
    while True:
        answers = _ask_all(answers)
        try:
            written(answers, path)
        except ShardyardError as error:
            findings = error.errors if isinstance(error, InvalidDocument) else []
            screen.error(error.message, findings)
            if not findings and error.remedy:
                screen.say(f"  → {error.remedy}")
            continue
        return answers


def _ask_all(before: Answers) -> Answers:
    name = _ask(_NAME, before.name)
    family = _ask("Model family", before.family, list(PRESETS))
    sizes = list(PRESETS[family])
    preset = _ask("Size", before.preset if before.preset in sizes else sizes[0], sizes)
    files = _ask("Text files to train on, as a path or glob (empty: Python's own sources)", before.files)
    degrees = {
        "data": _ask("Replicas of the model (data)", before.data),
        "tensor": _ask("Ranks that share each matrix (tensor)", before.tensor),
        "pipeline": _ask("Ranks that share the blocks (pipeline)", before.pipeline),
    }
    steps = _ask("Optimizer steps", before.steps)
    batch = _ask("Sequences per step, over all ranks (global batch)", before.global_batch)
    answers = replace(before, name=name, family=family, preset=preset, files=files, steps=steps, global_batch=batch)
    return replace(answers, **degrees)


def _ask(question: str, default: Any, choices: list[str] | None = None) -> Any:
    """Print a question to stderr, since it is no result."""
    shown = f"{question} [{', '.join(choices)}]" if choices else question
    while True:
        answer = typer.prompt(shown, default=default, type=type(default), err=True, show_default=default != "")
        if choices is None or answer in choices:
            return answer
        typer.echo(f"  Choose one of: {', '.join(choices)}", err=True)


def _refuse_overwriting(path: Path, *, ask: bool, force: bool) -> None:
    if force or not path.exists():
        return
    if ask and sys.stdin.isatty() and typer.confirm(f"{path} exists. Overwrite it?", err=True):
        return
    raise InvalidParameter(f"{path} exists.", remedy=f"Overwrite it with: shardyard init {path} --force")
