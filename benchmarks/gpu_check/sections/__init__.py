"""The sections of the check, in the order in which they run. Each is a module with `checks(at)`; `NAMES` are what `--only` takes."""

NAMES = (
    "kernels",
    "first_values",
    "determinism",
    "memory",
    "synchronisations",
    "tracing",
    "snapshots",
    "checkpoints",
    "offload",
    "recovery",
    "speed",  # last: it takes the longest, and a time limit then costs some of its lines only
)
