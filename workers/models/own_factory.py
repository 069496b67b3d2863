"""Calls a factory of the user's own, which a spec names as `module:factory`. Its `code` folder is put on the Python path first."""

import importlib
import sys
from pathlib import Path
from typing import Any

from ...strategies.layout import Refusal
from .own_module import MODEL, FieldNames, OwnModel, refuse_arguments


def made(spec: OwnModel, names: FieldNames = MODEL) -> Any:
    """What the factory returns. Raises `Refusal` if it cannot be imported or does not take the arguments, and what it raises."""
    assert spec.import_ is not None
    module_name, factory_name = spec.import_.split(":")
    folder = str(Path(spec.code).expanduser()) if spec.code else None
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise Refusal(
            names.factory,
            f"cannot import {spec.import_}: {error}.",
            "Give module:factory, and model.code: the folder that holds the module.",
        ) from error
    refuse_arguments(factory, spec, names)
    return factory(**spec.args)
