"""The C++ compiler that torch.compile is given: what it writes appears whole under its name, or not at all.

Inductor lets the compiler write a library at the very path by which every process of the node looks for it. A trainer that is killed
meanwhile frees the lock that hid it, and its successor would load half a library. So the compiler is called through a script of a few
lines, which has it write beside the wanted path, and renames. The script is named after the compiler, since Inductor tells GCC and
Clang by their names.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

#: Where Inductor looks for one, in this order, if nothing else is said (`CXX`).
COMPILERS: Final = ("g++", "clang++", "c++")

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
    """The compiler's path: `CXX` where it is set, else the first of `COMPILERS` that this machine has."""
    return next((path for name in (os.environ.get("CXX"), *COMPILERS) if name and (path := shutil.which(name))), None)


def whole(compiler: str, folder: Path) -> Path:
    """A script in `folder` that calls `compiler` and lets only whole results appear."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"whole-{Path(compiler).name}"
    text = _SCRIPT.format(compiler=compiler.replace("'", "'\\''"))
    if not script.is_file() or script.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o700)
        Path(draft.name).replace(script)
    return script
