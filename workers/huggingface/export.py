"""Export: a checkpoint of any layout becomes a Hugging Face folder, in one process, which holds one output file's weights at a time.

The folder appears whole or not at all (`Folder.filled`): everything is written beside it under another name, synced, and renamed. In a
bucket, `config.json` comes last, and before that everything lies in a local folder for temporary files.
"""

import contextlib
import errno
import json
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...strategies.param_shard import ParamShard
from ..checkpoint.errors import CheckpointError
from ..checkpoint.manifest import Manifest, read
from ..checkpoint.reader import load_into
from ..checkpoint.verify import verify
from ..data.end_of_text import token_text
from ..data.errors import DataError
from ..data.tokenizer import END_BYTE, ENDING_BYTES, FileTokenizer
from ..models.hf_config import Place, config_of, place
from ..models.presets import Architecture
from ..models.registry import make
from ..storage.folder import Folder

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

#: A checkpoint's folder and its manifest.
Source = tuple[Folder, Manifest]

CONFIG = "config.json"
#: Has the digest of the checkpoint of which the export was made, how it was trained, and why its tokenizer is missing, if it is.
_ORIGIN = "shardyard.json"

#: Files beside a published tokenizer.json that a chat model needs.
_COMPANIONS = ("chat_template.jinja", "chat_template.json", "special_tokens_map.json", "added_tokens.json")

#: Maximum bytes of one output file. A larger tensor gets a file of its own.
SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, its files of weights, the number of parameters and their bytes.

    `tokenizer_missing`: why the training's tokenizer is not in it, with a remedy; None if it is there, or tokens were bytes.
    """

    path: str
    files: int
    parameters: int
    bytes: int
    tokenizer_missing: str | None = None


@dataclass(frozen=True)
class _Tensor:
    """One tensor of the output: our parameters side by side (several where a file fuses them)."""

    name: str
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    transposed: bool

    @property
    def numel(self) -> int:
        return sum(torch.Size(shape).numel() for _, shape in self.parts)


def export(
    checkpoint: Folder,
    out: Folder,
    dtype: str = "fp32",
    shard_bytes: int = SHARD_BYTES,
    beat: Callable[[], None] = lambda: None,
    verified: Manifest | None = None,
) -> Exported:
    """Write the model of `checkpoint` (a `step-…` folder) to the new folder `out`, weights in `dtype` (a key of `DTYPES`).

    `beat` is called for each file that is verified or written, and each part that is sent to a bucket. `verified`: the checkpoint's
    manifest, if all files are known to match it. Raises `CheckpointError` if it cannot be exported, `StorageError`, and `FileExistsError`
    if `out` is not empty.
    """
    with out.filled(CONFIG, beat) as partial:
        manifest = verified or read(checkpoint)
        arch = _architecture(checkpoint, manifest)
        if verified is None:
            verify(checkpoint, manifest, beat)
        shards = list(_shards(_tensors(arch), DTYPES[dtype].itemsize, shard_bytes))
        _write_weights((checkpoint, manifest), partial, shards, DTYPES[dtype], beat)
        tokenizer, missing = _tokenizer_of(manifest.training)
        trained = trained_as(manifest.training)
        _write_rest(partial, arch, DTYPES[dtype], tokenizer, END_BYTE if trained["tokenizer"] == ENDING_BYTES else None)
        why = {} if missing is None else {"tokenizer_missing": missing}
        _write_json(partial / _ORIGIN, {"checkpoint": manifest.sha256, "trained": trained} | why)
        size = 0
        for file in partial.glob("*.safetensors"):
            shutil.copymode(partial / CONFIG, file)  # safetensors lets only the owner read
            size += file.stat().st_size
    return Exported(str(out), len(shards), arch.parameters, size, missing)


def exported(out: Folder, dtype: str) -> Exported | None:
    """The result of an earlier export in `dtype` to `out`; None if there is none, or it is incomplete."""
    if not out.has(CONFIG):
        return None
    sizes = {name: size for name, size in out.files().items() if name.endswith(".safetensors")}
    content = sum(size - _header_bytes(out, name) for name, size in sizes.items())
    missing = origin(out).get("tokenizer_missing")
    return Exported(str(out), len(sizes), content // DTYPES[dtype].itemsize, sum(sizes.values()), missing)


def checkpoint_of(out: Folder) -> str | None:
    """The digest of the checkpoint of which an export was made; None if it does not say, as those of earlier versions. Raises OSError."""
    found = origin(out)
    return str(found["checkpoint"]) if "checkpoint" in found else None


def has_tokenizer(manifest: Manifest) -> bool:
    """Whether an export of this checkpoint, made here and now, would have all that the training's tokenizer says."""
    return _tokenizer_of(manifest.training)[1] is None


def origin(out: Folder) -> dict[str, Any]:
    """What an export says of itself; empty for those of earlier versions."""
    found: dict[str, Any] = json.loads(out.read(_ORIGIN)) if out.has(_ORIGIN) else {}
    return found


def _header_bytes(folder: Folder, name: str) -> int:
    """Bytes before the numbers of a safetensors file: an 8-byte length, and JSON of that length."""
    length = bytearray(8)
    folder.read_into(name, 0, memoryview(length))
    return 8 + int.from_bytes(length, "little")


def _architecture(checkpoint: Folder, manifest: Manifest) -> Architecture:
    numbers = manifest.training.get("model")
    if "program" in manifest.training:
        raise CheckpointError(f"{checkpoint} holds a program's own files; export it with code of your own.")
    if numbers is None:
        raise CheckpointError(
            f"{checkpoint} does not name its architecture (a module of your own, or saved by an older version); "
            "resume it for one step to save it again, or export it with code of your own."
        )
    arch = Architecture.model_validate(numbers)
    try:
        config_of(arch, "float32", None)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint} cannot be exported: {error}.") from None
    return arch


def _write_weights(
    source: Source, folder: Path, shards: list[list[_Tensor]], dtype: torch.dtype, beat: Callable[[], None]
) -> None:
    """Write all weights, a file for each shard, and an index if there are several."""
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        beat()
        name = "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_shard(source, folder / name, shard, dtype)
        index |= {tensor.name: name for tensor in shard}
    if len(shards) > 1:
        size = sum(tensor.numel for shard in shards for tensor in shard) * dtype.itemsize
        _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})


def _tensors(arch: Architecture) -> list[_Tensor]:
    """The tensors of the output, in the order of the model."""
    with torch.device("meta"):
        model = make(arch)
    found: dict[str, list[tuple[Place, str, tuple[int, ...]]]] = {}
    for name, value in model.named_parameters():
        where = place(name, arch.family)
        found.setdefault(where.name, []).append((where, name, tuple(value.shape)))
    tensors = []
    for name, parts in found.items():
        ordered = sorted(parts, key=lambda part: part[0].part)
        assert len(ordered) == ordered[0][0].parts, name
        tensors.append(_Tensor(name, tuple((ours, shape) for _, ours, shape in ordered), ordered[0][0].transposed))
    return tensors


def _shards(tensors: list[_Tensor], element_bytes: int, limit: int) -> Iterator[list[_Tensor]]:
    shard: list[_Tensor] = []
    size = 0
    for tensor in tensors:
        more = tensor.numel * element_bytes
        if shard and size + more > limit:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += more
    yield shard


def _write_shard(source: Source, file: Path, shard: list[_Tensor], dtype: torch.dtype) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    pieces = {
        name: ParamShard(name, shape, (0,) * len(shape), torch.empty(shape, dtype=dtype), frozenset())
        for tensor in shard
        for name, shape in tensor.parts
    }
    load_into(*source, list(pieces.values()))
    content = {}
    for tensor in shard:
        whole = torch.cat([pieces.pop(name).tensor for name, _ in tensor.parts])
        content[tensor.name] = (whole.t() if tensor.transposed else whole).contiguous()
    try:
        save_file(content, file, metadata={"format": "pt"})
    except SafetensorError as error:  # such as of a full disk
        raise OSError(errno.EIO, str(error), str(file)) from error


def trained_as(training: Mapping[str, Any]) -> dict[str, Any]:
    """What of the training `sample.py` needs: how documents were joined, the length of sequences, and the tokenizer's digest."""
    data = training.get("data") or {}
    digest = data.get("tokenizer")
    packed = training.get("documents") == "packed" or digest == ENDING_BYTES
    return {"documents": "packed" if packed else "joined", "seq_len": data.get("seq_len"), "tokenizer": digest}


def _write_rest(
    folder: Path, arch: Architecture, dtype: torch.dtype, tokenizer: FileTokenizer | None, end_byte: int | None
) -> None:
    """config.json, generation_config.json, and the tokenizer. `end_byte`: that which ends documents of bytes, if one does."""
    ends = [one for one in (end_byte,) if one is not None] if tokenizer is None else _copy_tokenizer(folder, tokenizer)
    end = ends[0] if ends else None
    _write_json(folder / CONFIG, config_of(arch, str(dtype).removeprefix("torch."), end))
    _write_json(folder / "generation_config.json", {"do_sample": False, "eos_token_id": ends if len(ends) > 1 else end})


def _tokenizer_of(training: Mapping[str, Any]) -> tuple[FileTokenizer | None, str | None]:
    """The tokenizer.json of the training, None for bytes; and why it is missing, if it is not at its path any more."""
    named, digest = training.get("tokenizer"), (training.get("data") or {}).get("tokenizer")
    if named in (None, "bytes"):
        return None, None
    path = Path(str(named))
    with contextlib.suppress(OSError, RuntimeError):  # a folder that this user may not enter, a home that is not here
        path = path.expanduser()
        path = path / "tokenizer.json" if path.is_dir() else path
    try:
        found = FileTokenizer(path, lambda: digest)
        if found.digest == (digest or found.digest):
            return found, None
        problem = "has changed since the training"
    except DataError as error:
        problem = "does not exist" if isinstance(error.__cause__, FileNotFoundError) else "cannot be read"
    where = f"{path} {problem} on {platform.node()}"
    return None, f"{where}: the export has no tokenizer. Put that of the training there, and export again."


def _copy_tokenizer(folder: Path, tokenizer: FileTokenizer) -> list[int]:
    """Copy a tokenizer.json with what belongs to it, such as a chat template; returns the ids that end a text or a chat's turn."""
    shutil.copyfile(tokenizer.file, folder / "tokenizer.json")
    # Transformers 4 adds token_type_ids to inputs that are not named.
    own: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"]}
    own |= {} if tokenizer.end_name is None else {"eos_token": tokenizer.end_name}
    config = own | _copy_companions(folder, tokenizer.file) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    _write_json(folder / "tokenizer_config.json", config)
    turn = config.get("eos_token")
    ends = (tokenizer.end, tokenizer.id_of(turn) if isinstance(turn, str) else None)
    return list(dict.fromkeys(end for end in ends if end is not None))


def _copy_companions(folder: Path, tokenizer: Path) -> dict[str, Any]:
    """Copy the other tokenizer files of a published model; returns its tokenizer_config.json without `auto_map`, which names its code."""
    if tokenizer.name != "tokenizer.json":
        return {}
    for name in _COMPANIONS:
        if (tokenizer.parent / name).is_file():
            shutil.copyfile(tokenizer.parent / name, folder / name)
    try:
        config = json.loads((tokenizer.parent / "tokenizer_config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return (
        {name: token_text(value) for name, value in config.items() if name != "auto_map"}
        if isinstance(config, dict)
        else {}
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with path.open("w") as out:
        json.dump(content, out, indent=2)
        out.write("\n")
