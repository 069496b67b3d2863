"""Finds commands that start and then do something else than their author means, such as a script that is not on the nodes."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import PurePosixPath
from typing import Final

from ...workers.program.program import argv
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
#: Relative paths: of a program, and of a script anywhere in a command.
_PROGRAM: Final = re.compile(r"(?![-/~$])[^\s$]*/[^\s$]*")
_SCRIPT: Final = re.compile(r"(?![-/~$])[^\s=:$*]+\.(py|sh)")


def warnings(spec: CommandSpec) -> list[FieldError]:
    """One finding for each, with a remedy. What a text for a shell does is guessed from its words."""
    programs = _programs(spec.command)
    return [*_missing_script(spec, programs)]


def _missing_script(spec: CommandSpec, programs: Sequence[Sequence[str]]) -> Iterator[FieldError]:
    if spec.code is not None or spec.cwd is not None or any(_name(program) in _FETCH for program in programs):
        return
    words = (word for program in programs for word in program if _is_own_file(word, program))
    text = " ".join(argv(spec.command))
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


def _name(program: Sequence[str]) -> str:
    return PurePosixPath(program[0]).name


def _programs(command: str | list[str]) -> list[list[str]]:
    """Each program of the command, with its arguments. Of a text that cannot be read none."""
    words = [*argv(command)]
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
