"""Finds commands that start and then do something else than meant: a script that is not on the nodes, a launcher in each rank."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile
from pathlib import PurePosixPath
from typing import Final

from ...workers.program.program import shown
from ..schemas.problem import FieldError
from ..spec import CommandSpec

_FIELD: Final = "command"
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh"})
#: Characters of a shell that end a word; all but `<` and `>` also end a simple command.
_PUNCTUATION: Final = "();<>|&\n"
_COMMENT: Final = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: Words that stand before the program that they run.
_BEFORE: Final = frozenset({"!", "do", "else", "env", "exec", "if", "nohup", "poetry", "run", "then", "time", "uv"})
#: Programs that may put a script into its place, or go to its folder.
_FETCH: Final = frozenset(
    {"aws", "cd", "cp", "curl", "git", "gsutil", "hf", "ln", "mv", "pushd", "rsync", "tar", "unzip", "wget"}
)
#: Relative paths: of a program, and of a script anywhere in a command. Each is compared in one pass, however long the word is.
_PROGRAM: Final = re.compile(r"(?![-/~$])[^\s$/]*/[^\s$]*")
_SCRIPT: Final = re.compile(r"(?![-/~$])[^\s=:$*]+\.(py|sh)")


@dataclass(frozen=True)
class _Launcher:
    """A program that starts ranks, and its options for the numbers of processes and of nodes, with hyphens."""

    name: str
    processes: tuple[str, ...]
    nodes: tuple[str, ...] = ()


_TORCHRUN: Final = _Launcher("torchrun", ("--nproc-per-node",), ("--nnodes",))
_ACCELERATE: Final = _Launcher("accelerate launch", ("--num-processes",), ("--num-machines",))
_DEEPSPEED: Final = _Launcher("deepspeed", ("--num-gpus",), ("--num-nodes",))
#: Programs, and modules that `python -m` runs.
_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate launch": _ACCELERATE,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "deepspeed.launcher.runner": _DEEPSPEED,
    "mpirun": _Launcher("mpirun", ("-np", "-n")),
    "mpiexec": _Launcher("mpiexec", ("-np", "-n")),
}


def warnings(spec: CommandSpec) -> list[FieldError]:
    """One finding for each, with a remedy. What a text for a shell does is guessed from its words."""
    programs = _programs(spec.command)
    launched = [found for program in programs if spec.ray is None and (found := _launcher(program)) is not None]
    check = _in_each_rank if spec.command_per == "rank" else _on_each_node
    return [*_missing_script(spec, programs), *(finding for one in launched for finding in check(spec, *one))]


def _missing_script(spec: CommandSpec, programs: Sequence[Sequence[str]]) -> Iterator[FieldError]:
    if spec.code is not None or spec.cwd is not None or any(_name(program) in _FETCH for program in programs):
        return
    words = (word for program in programs for word in program if _is_own_file(word, program))
    text = " ".join(shown(spec.command))
    for word in words:
        if not re.search(rf">\s*['\"]?{re.escape(word)}", text):  # which the command writes itself
            yield FieldError(
                field=_FIELD,
                message="The job has neither code nor cwd, so the command starts in the home folder of the user that runs the ranks. "
                f"It finds {word!r:.200} only if the file is there.",
                remedy="Add code: {dir: .}, which uploads the folder of the spec file; the command starts in a copy of it. With "
                "`shardyard run SPEC code.dir=.` that is the folder that you are in. Or name a folder that all nodes see in cwd.",
            )
            return


def _is_own_file(word: str, program: Sequence[str]) -> bool:
    return bool(_SCRIPT.fullmatch(word) or (word == program[0] and _PROGRAM.fullmatch(word)))


def _in_each_rank(spec: CommandSpec, launcher: _Launcher, options: Sequence[str]) -> Iterator[FieldError]:
    """A launcher that forms a group of its own in each rank. One that starts one process is right for a job of one rank."""
    ranks, (_, processes) = spec.sizes[0], _option(options, launcher.processes)
    if ranks > 1:
        fault = f"each of the {ranks} ranks runs it: they form {ranks} groups instead of one, which share devices and ports."
    elif processes.isdecimal() and processes != "1":
        fault = "the job has one rank: its processes share one device."
    else:
        return
    remedy = "Write the script itself, as in command: [python, train.py], and the number of all ranks as ranks."
    if launcher is _TORCHRUN:
        remedy += " Or set command_per: node and ranks_per_node, and leave --nnodes, --nproc-per-node and the options of the rendezvous "
        remedy += "out: torchrun reads them from its environment."
    yield FieldError(field=_FIELD, message=f"{launcher.name} starts ranks itself, and {fault}", remedy=remedy)


def _on_each_node(spec: CommandSpec, launcher: _Launcher, options: Sequence[str]) -> Iterator[FieldError]:
    """Options by which a launcher forms a group on each node, or starts another number of ranks than the job has there."""
    of_job = spec.sizes[0] // spec.together
    nodes, processes = _option(options, launcher.nodes), _option(options, launcher.processes)
    alone = " ".join(nodes) if nodes[1] in ("1", "1:1") else ""
    if "--standalone" in options:
        alone = "--standalone"
    if alone and of_job > 1:
        remedy = "Set it to $GROUP_WORLD_SIZE, in a command that is text for a shell."
        if launcher is _TORCHRUN:
            remedy = "Leave it out: torchrun reads the number of nodes from PET_NNODES."
        message = f"{alone} makes a group of the ranks of each node, and the job has {of_job} nodes."
        yield FieldError(field=_FIELD, message=message, remedy=remedy)
    if launcher is _TORCHRUN and processes[1].isdecimal() and processes[1] != str(spec.together):
        yield FieldError(
            field=_FIELD,
            message=f"{' '.join(processes):.200} does not say that a node has {spec.together} ranks, as ranks_per_node does.",
            remedy="Leave it out: torchrun reads the number from PET_NPROC_PER_NODE.",
        )


def _launcher(program: Sequence[str]) -> tuple[_Launcher, list[str]] | None:
    """The launcher that a simple command starts, and its options."""
    name, words = _name(program), [*program[1:]]
    if re.fullmatch(r"python[\d.]*", name):
        module = [*dropwhile(lambda word: word.startswith("-") and word != "-m", words)]
        name, words = (module[1], module[2:]) if module[:1] == ["-m"] and module[1:] else ("", [])
    elif words[:1] == ["launch"]:
        name, words = f"{name} launch", words[1:]
    found = _LAUNCHERS.get(name)
    return None if found is None else (found, [*takewhile(lambda word: not word.endswith(".py"), words)])


def _option(options: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """The first of these options as it is written, and its value; both are empty if none of them is there."""
    for word, following in pairwise([*options, ""]):
        written, has_value, value = word.partition("=")
        if written.replace("_", "-") in names:
            return written, value if has_value else following
    return "", ""


def _name(program: Sequence[str]) -> str:
    return PurePosixPath(program[0]).name


def _programs(command: str | list[str]) -> list[list[str]]:
    """Each program of the command, with its arguments. Of a text that cannot be read none."""
    words = [*shown(command)]
    is_text = len(words) > 2 and _name(words) in _SHELLS and re.fullmatch(r"-\w*c", words[1])
    commands = _simple_commands(words[2]) if is_text else [words]
    return [program for each in commands if (program := _without_prefix(each))]


def _without_prefix(words: list[str]) -> list[str]:
    """The words from the program on: without variables that are set for it, and without what runs it."""
    return [*dropwhile(lambda word: word in _BEFORE or _ASSIGNMENT.match(word) is not None, words)]


def _simple_commands(text: str) -> list[list[str]]:
    """The words of each simple command of a text for a shell, without redirections. Empty if a quote is not closed."""
    lexer = shlex.shlex(_COMMENT.sub("", text).replace("\\\n", " "), posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    found: list[list[str]] = [[]]
    target = False
    try:
        for word in lexer:
            if word and not word.strip(_PUNCTUATION):
                target = "<" in word or ">" in word
                if not target:
                    found.append([])
            elif target:
                target = False
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return found
