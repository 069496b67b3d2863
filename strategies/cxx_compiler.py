"""A C++ compiler for torch.compile whose output file appears complete under its name, or not at all.

Inductor lets the compiler write a library directly to the path at which every process of the node looks for it. If a trainer is
killed during that, the lock that hid the file is released, and its successor would load half a library. So the compiler is called
through a short script. The script lets the compiler write beside the requested path, then renames. The script is named after the
compiler, since Inductor recognises GCC and Clang by their names.
"""

import functools
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

#: Compilers that Inductor looks for, in this order, if `CXX` is not set.
COMPILERS: Final = ("g++", "clang++", "c++")

#: Compilers that Triton looks for, in this order, if `CC` is not set.
C_COMPILERS: Final = ("gcc", "clang")

#: Seconds for a look at the headers.
_LOOK_S: Final = 60.0

_SCRIPT: Final = """\
#!/bin/sh
compiler='{compiler}' draft= out= before=
for one do
    shift
    if [ "$before" = -o ]; then
        out=$one draft=$one.draft.$$
        one=$draft
    fi
    set -- "$@" "$one"
    before=$one
done
[ -n "$out" ] || exec "$compiler" "$@"
"$compiler" "$@" && exec mv -f "$draft" "$out"
status=$?
rm -f "$draft"
exit "$status"
"""


def found() -> str | None:
    """The compiler's path: `CXX` if it is set, else the first of `COMPILERS` that this machine has."""
    return next((path for name in (os.environ.get("CXX"), *COMPILERS) if name and (path := shutil.which(name))), None)


def found_for_c() -> str | None:
    """The path of the C compiler: `CC` if it is set, else the first of `C_COMPILERS` that this machine has."""
    names = [os.environ["CC"]] if os.environ.get("CC") else C_COMPILERS
    return next((path for name in names if (path := shutil.which(name))), None)


def includes_python(compiler: str) -> bool:
    """Whether `compiler` finds Python.h and all that it includes, looking where Inductor and Triton look."""
    return _includes_python(compiler, sysconfig.get_path("include", "posix_prefix"))


@functools.cache
def _includes_python(compiler: str, headers: str) -> bool:
    """A run of the compiler, about 0.3 s. One that does not end counts as one that can: it is not this that is wrong with it."""
    command = [compiler, f"-I{headers}", "-E", "-x", "c", "-", "-o", os.devnull]
    try:
        done = subprocess.run(
            command, input=b"#include <Python.h>\n", capture_output=True, timeout=_LOOK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == 0


def own_folder() -> Path:
    """This user's folder for the script, the same for all processes: Inductor finds what it compiled by the compiler's path.

    Raises `PermissionError` if the folder belongs to another user.
    """
    return owned(Path(tempfile.gettempdir()) / f"shardyard-cxx-{os.getuid()}")


def owned(folder: Path) -> Path:
    """The folder, which is made if it is missing. Raises `PermissionError` if it belongs to another user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it, or set TMPDIR to a folder of your own.")
    return folder


def whole(compiler: str, folder: Path) -> Path:
    """Write a script into `folder` that calls `compiler` and renames only complete results into place. Returns the script's path."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"whole-{Path(compiler).name}"
    text = _SCRIPT.format(compiler=compiler.replace("'", "'\\''"))
    if not script.is_file() or script.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o700)
        Path(draft.name).replace(script)
    return script
