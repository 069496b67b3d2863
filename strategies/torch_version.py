"""The versions of torch whose private functions were tried. `docs/design/private-apis.md` lists those that are used."""

from typing import Final

import torch

TRIED: Final = ("2.13.",)


def tried() -> bool:
    """Whether the installed torch is a version that was tried."""
    return torch.__version__.startswith(TRIED)


def require(api: str) -> None:
    """Raises `RuntimeError` if the private function `api` was not tried on the installed torch."""
    if not tried():
        versions = ", ".join(f"{version}x" for version in TRIED)
        raise RuntimeError(
            f"{api} is private to torch and was tried on torch {versions} only; torch {torch.__version__} is installed."
        )
