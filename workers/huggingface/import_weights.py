"""Weights of a published model, read by slice: each rank reads from the safetensors files only what its layout assigns to it.

Files are memory-mapped; a slice costs its own bytes (and, for tensor cuts along the second dimension, those of its rows).
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...strategies.layout import Refusal
from ..models.hf_config import Place, architecture_of, place
from ..models.presets import Architecture
from ..regular_files import read

#: Tensors in some files that are not trained.
_NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
_DTYPES = ("F64", "F32", "BF16", "F16")
_MOST_INDEX_BYTES = 64 << 20


class Pretrained:
    """The weights of the model in `folder`; `names` are all parameters of it (or of any layout's parts together).

    Raises `Refusal` of `model.from` if the files lack a tensor of the architecture, or have others.
    """

    def __init__(self, folder: Path, arch: Architecture, names: Iterable[str]) -> None:
        self._folder, self._arch = folder, arch
        self._files = _files(folder)
        self._open: dict[str, Any] = {}
        used = {self._place(name).name for name in names}
        unused = [
            name
            for name in self._files
            if name not in used and name != "lm_head.weight" and not name.endswith(_NO_WEIGHTS)
        ]
        if unused:
            raise _refusal(f"holds {unused[0]}, which is not in the architecture of config.json", folder)

    def __call__(self, name: str, shape: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> torch.Tensor:
        """The slice of `size` at `offset` of the parameter `name`, whose whole shape is `shape`; on the CPU, in the file's dtype."""
        if 0 in size:
            return torch.empty(tuple(size))
        where = self._place(name)
        starts = [offset[0] + where.part * shape[0], *offset[1:]]
        slice_of = tuple(slice(start, start + length) for start, length in zip(starts, size, strict=True))
        whole = (where.parts * shape[0], *shape[1:])
        stored = self._slice(where.name)
        if tuple(stored.get_shape()) != (whole[::-1] if where.transposed else whole):
            raise _refusal(f"has {where.name} of shape {stored.get_shape()}, not {list(whole)}", self._folder)
        if stored.get_dtype() not in _DTYPES:
            raise _refusal(f"has {where.name} in {stored.get_dtype()}, not in {', '.join(_DTYPES)}", self._folder)
        values: torch.Tensor = stored[slice_of[::-1] if where.transposed else slice_of]
        return values.t() if where.transposed else values

    def _place(self, name: str) -> Place:
        """The place of a parameter by this folder's names: base models have no prefix, tied ones no head."""
        found = place(name, self._arch.family)
        short = Place(found.name.partition(".")[2], found.transposed, found.part, found.parts)
        for candidate in (found, short):
            if candidate.name in self._files:
                return candidate
        if name == "head.weight" and (self._arch.tied or architecture_of(self._folder).tied):
            return self._place("embed.weight")
        raise _refusal(f"holds no {found.name}", self._folder)

    def _slice(self, name: str) -> Any:
        from safetensors import SafetensorError, safe_open

        file = self._files[name]
        try:
            if file not in self._open:
                self._open[file] = safe_open(self._folder / file, framework="pt")
            return self._open[file].get_slice(name)
        except (OSError, SafetensorError) as error:
            raise _refusal(f"has no readable {name} in {file} ({error})", self._folder) from None


def _files(folder: Path) -> dict[str, str]:
    """Tensor → file, from the index of a sharded model or the only file."""
    from safetensors import SafetensorError, safe_open

    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            entries: dict[str, str] = json.loads(read(index, _MOST_INDEX_BYTES))["weight_map"]
            return {name: Path(file).name for name, file in entries.items()}
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            return dict.fromkeys(file.keys(), "model.safetensors")
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _refusal(f"has no readable model.safetensors or index of it ({error})", folder) from None


def _refusal(message: str, folder: Path) -> Refusal:
    return Refusal(
        "model.from", f"{folder} {message}.", "Save it again with transformers: model.save_pretrained(folder)."
    )
