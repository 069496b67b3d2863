"""`shardyard run --local`: a job's ranks on this machine, without a control plane and without Ray. Nothing of it is stored."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from ....service.errors import InvalidSpec
from ....service.jobs import auto_layout, command_warnings, program_environment, program_files, rank_environment
from ....service.jobs.advice import Cpus
from ....service.jobs.auto_layout import Devices
from ....service.layout_choice import layout_choice
from ....service.policies.limits import ArtifactLimits
from ....service.settings import Settings
from ....service.spec import AnySpec, CommandSpec, JobSpec, SecretUse
from ....workers.checkpoint import retention
from ....workers.gpu_models import GPU_MODELS, gpu_of_device
from ....workers.host_memory import total_memory
from ....workers.one_thread import ON_CPUS
from ....workers.program.build_process import EnvironmentNotBuilt
from ....workers.program.files.errors import FilesNotFetched
from ....workers.program.local_preparation import LocalPlace, locally_prepared
from ....workers.program.local_ranks import LocalRun, run_locally
from ....workers.program.program import ArtifactStorage, FilesCache, Mount, Program, argv, python_of
from ....workers.program.rank_output import RankOutput
from ....workers.program.shared_folder import FolderUnavailable
from ....workers.storage.open_folder import folder_at
from ....workers.trainer.secrets import file_of
from ...client.git_clone import clone
from ...errors import InvalidParameter
from ...http.validation_errors import read_spec
from ..terminal.screen import Screen
from .dry_run import architecture_here, check_here, vocabulary_here

#: Folder of what trainings write: checkpoints, and the token cache.
_OUT: Final = ".shardyard/local"
_STREAMS: Final = MappingProxyType({"stdout": 1, "stderr": 2})


def run_local(document: Any, screen: Screen) -> int:
    """Run the ranks of a spec, and return the exit status: that of the rank that failed first.

    Raises InvalidDocument, InvalidParameter, InvalidLayout, and for a layout that is chosen here what `decided_here` raises.
    """
    spec = read_spec(document)
    if isinstance(spec, CommandSpec) and spec.ray is not None:
        remedy = "Run the script itself: ray.init() starts a Ray on this machine."
        raise InvalidParameter("A driver of Ray does not run with --local.", field="ray", remedy=remedy)
    rank_environment.check(spec)
    if isinstance(spec, CommandSpec):
        _check_program(spec)
    if isinstance(spec, JobSpec) and spec.train.undecided:
        spec = decided_here(spec)
        document = {**document, "train": spec.train.model_dump(mode="json", by_alias=True)}
        screen.say(f"Layout: {spec.train.layout}, {layout_choice(document)}.")
    if isinstance(spec, JobSpec):
        check_here(spec.train)
    else:
        screen.warnings(command_warnings.warnings(spec))
    for notice in notices(spec, Path(_OUT)):
        screen.say(notice)
    with (
        tempfile.TemporaryDirectory(prefix="shardyard-local-") as folder,
        _run(spec, document, Path(folder), screen) as run,
    ):
        try:
            output = RankOutput(run.ranks, _STREAMS)
            return run_locally(run, output)
        except OSError as error:
            remedy = "Name a program that is on this machine."
            message = f"{run.program.command[0]!r} cannot be started in {run.folder}: {error.strerror or error}."
            raise InvalidParameter(message, field="command", remedy=remedy) from None


def decided_here(spec: JobSpec) -> JobSpec:
    """The spec with the layout that is fastest on this machine. Raises InvalidSpec, InvalidLayout, DoesNotFit, InvalidParameter."""
    architecture = architecture_here(spec.train, vocabulary_here(spec.train))
    return auto_layout.decided(spec, architecture, _devices(spec))


def _devices(spec: JobSpec) -> Devices:
    """This machine's GPUs, if there are enough, else its cores. Raises InvalidParameter."""
    found, auto = torch.cuda.device_count(), spec.train.layout.auto
    world = None if auto is None else auto.world
    if gpus_here(spec.device, world or 1) is None:
        cores = len(os.sched_getaffinity(0))
        return Devices(Cpus(cores, total_memory() or None), cores)
    name = torch.cuda.get_device_name(0)
    if (model := gpu_of_device(name)) is None:
        message = f"What memory and speed {name} has is not known, so no layout can be chosen for it."
        memory = torch.cuda.get_device_properties(0).total_memory
        near = min(GPU_MODELS, key=lambda one: abs(one.memory_bytes - memory))
        asked = f'shardyard advise SPEC --world {world or found} --gpu "{near.name}" --measure'
        remedy = f"Write the layout that `{asked}` shows: of the known models it has the most similar memory."
        raise InvalidParameter(message, field="train.layout", remedy=remedy)
    return Devices(model, found, found, host_memory=total_memory() or None)


def notices(spec: AnySpec, out: Path) -> Iterator[str]:
    """In what this run differs from a job. `out`: what earlier ones have left."""
    if isinstance(spec, JobSpec):
        root = Path(spec.train.checkpoints(str(out.resolve() / "checkpoints"), spec.name))
        if root.is_dir() and (newest := retention.newest(folder_at(root))) is not None:
            yield f"The training continues from {newest.where}. Remove {root} to start afresh."
        return
    if spec.image:
        yield f"env.image is not used here: the program runs on this machine and not in the image {spec.image}."
    if spec.resume_from is not None:
        yield "resume_from is not read here: shardyard.resume returns what an earlier run has left on this machine, or None."


def _check_program(spec: CommandSpec) -> None:
    """Raise InvalidSpec, as a submission does, for an environment or files that no machine could have."""
    if spec.env is not None:
        program_environment.check(spec.env, in_code=spec.code is not None)
    program_files.check(spec.files)


@contextmanager
def _run(spec: AnySpec, document: Mapping[str, Any], folder: Path, screen: Screen) -> Iterator[LocalRun]:
    """What runs. `folder`: a private one, which is removed afterwards."""
    gpus = gpus_here(spec.device, spec.world_size)
    env = dict(os.environ) | (ON_CPUS if gpus is None else {})
    given = variables_of(spec)
    env |= given
    kept = Path(_OUT).absolute() / "artifacts" / spec.name
    if isinstance(spec, JobSpec):
        program = Program(spec.name, _trainer(spec, document, folder, gpus), artifacts=_artifacts(folder))
        yield LocalRun(program, spec.world_size, Path.cwd(), env, gpus, kept=kept)
        return
    code = _code(spec, folder)
    program = _program(spec, folder)
    with _prepared(program, code, given, screen) as place:
        start = _start_folder(spec, code)
        yield LocalRun(
            program, spec.ranks, start, env | place.variables, gpus, place.environment, conda=place.conda, kept=kept
        )


@contextmanager
def _prepared(program: Program, code: Path | None, given: Mapping[str, str], screen: Screen) -> Iterator[LocalPlace]:
    """The program's files and environment, in the cache of this machine. `given`: variables of the job. Raises InvalidSpec."""
    with ExitStack() as stack:
        try:
            cache = Settings().cache
            with _variables(given):
                place = stack.enter_context(locally_prepared(program, code, cache))
        except EnvironmentNotBuilt as error:
            remedy = "Correct it, or run without it: env=null. What uv or conda printed is above."
            raise InvalidSpec(
                f"The environment cannot be built: {str(error).rstrip('.')}.", field="env", remedy=remedy
            ) from None
        except FilesNotFetched as error:
            remedy = "Correct the source, or run without it: files={}."
            raise InvalidSpec(f"The files cannot be fetched: {error}", field="files", remedy=remedy) from None
        except FolderUnavailable as error:
            remedy = "End the run that makes it, or wait for it."
            raise InvalidSpec(f"{error}.", remedy=remedy) from None
        for target in place.own:
            screen.say(
                f"{code}/{target} is there already, so the program finds that one. The fetched one is in $SHARDYARD_FILES."
            )
        yield place


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process until the block ends: uv, conda and the libraries of storages read theirs there, as on a node."""
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _program(spec: CommandSpec, folder: Path) -> Program:
    env, settings = spec.env, Settings()
    return Program(
        spec.name,
        argv(spec.command),
        per_node=spec.command_per == "node",
        tensorboard=spec.tensorboard,
        artifacts=_artifacts(folder),
        mounts=tuple(Mount(target, source) for target, source in spec.files.items()),
        files=FilesCache(str(folder / "files"), int(settings.files_cache_gib * 2**30)) if spec.files else None,
        python=None if env is None else python_of(env.model_dump()),
        conda=None if env is None else env.conda,
    )


def _artifacts(folder: Path) -> ArtifactStorage:
    """Where logged files are until the run ends, by their digests. The run copies them to their names."""
    limits = ArtifactLimits()
    return ArtifactStorage(str(folder / "artifacts"), str(folder), limits.file_bytes, limits.bytes, limits.files)


def _trainer(spec: JobSpec, document: Mapping[str, Any], folder: Path, gpus: str | None) -> tuple[str, ...]:
    """The command of a training's ranks: the loop, on this machine."""
    path = folder / f"{spec.name}.json"
    path.write_text(json.dumps({"name": spec.name, "train": document["train"]}))
    device = "cpu" if gpus is None else "cuda"
    return (sys.executable, "-P", "-m", "shardyard.workers.local", str(path), "--device", device, "--out", _OUT)


def _code(spec: CommandSpec, folder: Path) -> Path | None:
    """The folder of code itself, so that an edit counts at the next start, or a clone."""
    if spec.code is not None and spec.code.git is not None:
        root = folder / "code"
        root.mkdir()
        clone(spec.code.git, spec.code.ref, root)
        return root
    if spec.code is None or spec.code.dir is None:
        return None
    return _existing(Path(spec.code.dir).absolute(), "code.dir")


def _start_folder(spec: CommandSpec, code: Path | None) -> Path:
    """Where the program starts."""
    return _existing((code or Path.home()) / (spec.cwd or ""), "cwd")


def _existing(folder: Path, field: str) -> Path:
    if not folder.is_dir():
        raise InvalidParameter(f"{folder} is no folder.", field=field, remedy="Name a folder of this machine.")
    return folder


def gpus_here(device: str, ranks: int) -> str | None:
    """The GPUs of all ranks, as CUDA_VISIBLE_DEVICES; None: the ranks run on CPUs. Raises InvalidParameter if there are too few.

    `device`: that of a spec; with `auto` they run on GPUs if there are enough.
    """
    if device == "cpu":
        return None
    found = torch.cuda.device_count()
    if device == "auto" and found < ranks:
        return None
    if found < ranks:
        message = f"{ranks} ranks need as many GPUs, and this machine has {found}."
        remedy = "Add resources.device=cpu to the command line, or ask for fewer ranks."
        raise InvalidParameter(message, field="resources.device", remedy=remedy)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(found)))
    return ",".join(shown.split(",")[:ranks])


def variables_of(spec: AnySpec) -> dict[str, str]:
    """The job's own variables: those of the spec, and its secrets. Raises InvalidParameter."""
    return spec.resources.env | _secrets(spec.secrets)


def _secrets(uses: list[SecretUse]) -> dict[str, str]:
    """Secrets as this shell has them: the variable of a secret's name. Raises InvalidParameter for one that is not set."""
    found = {}
    for use in uses:
        value = os.environ.get(use.name)
        if value is None:
            message = f"The secret {use.name} is not on this machine: the server does not give its values out."
            raise InvalidParameter(message, field="secrets", remedy=f"Set the variable {use.name} in this shell.")
        found[use.target] = file_of(value) if use.file else value
    return found
