"""What tests of several folders use. It is imported before any of them, and forgets how the caller's terminal looks."""

import os

#: They make the command line write colours or other widths, wherever its output goes; some are read once, at an import.
_TERMINAL = (
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "GITHUB_ACTIONS",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)

for _name in (*_TERMINAL, "COLUMNS", "LINES"):
    os.environ.pop(_name, None)
