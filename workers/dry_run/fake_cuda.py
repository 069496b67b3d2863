"""Gives this process a CUDA device that computes nothing. `load` must come before torch's import. Imports no torch.

The library (`fake_cuda.cpp`) is compiled at first use against the installed torch, which must be a build without CUDA, and is kept in
this user's folder under a name that changes with torch and with the source.
"""

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ...strategies import cxx_compiler

SOURCE: Final = Path(__file__).with_name("fake_cuda.cpp")
#: Seconds that the compiler may take; about 5 are usual.
_COMPILE_S: Final = 120


class NoFakeDevice(RuntimeError):
    """There can be no fake device here. The text says why, and the remedy."""


def load() -> None:
    """Load the device into this process. Raises `NoFakeDevice`."""
    if "torch" in sys.modules:
        raise RuntimeError("The fake device must be loaded before torch is imported.")
    try:
        ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NoFakeDevice(f"The fake device does not load: {error}.") from None


def library() -> Path:
    """The compiled library's path. Compiles it if it is missing. Raises `NoFakeDevice`."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise NoFakeDevice("A dry run needs torch. Install it with: pip install torch==2.13.0")
    torch = Path(next(iter(spec.submodule_search_locations)))
    if (torch / "lib" / "libtorch_cuda.so").exists():
        raise NoFakeDevice(
            "A dry run needs a build of torch without CUDA, which this one is not. Make an environment of its own with the CPU build."
        )
    key = hashlib.blake2b(f"{version('torch')} {torch}".encode() + SOURCE.read_bytes(), digest_size=8).hexdigest()
    try:
        built = cxx_compiler.own_folder() / f"fake-cuda-{key}.so"
    except PermissionError as error:
        raise NoFakeDevice(str(error)) from None
    if not built.exists():
        _compile(torch, built)
    return built


def _compile(torch: Path, built: Path) -> None:
    """Compile beside `built`, then rename: another process never loads half a library."""
    compiler = cxx_compiler.found()
    if compiler is None:
        raise NoFakeDevice("A dry run compiles a small library at first use. Install a C++ compiler, for example g++.")
    lib = torch / "lib"
    includes = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    links = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lc10", "-ltorch_cpu"]
    handle, draft = tempfile.mkstemp(dir=built.parent, suffix=".so")
    os.close(handle)
    command = [compiler, "-shared", "-fPIC", "-O1", "-std=c++20", "-w", *includes, str(SOURCE), "-o", draft, *links]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if done.returncode:
            raise NoFakeDevice(f"{compiler} cannot compile the fake device: {done.stderr.strip()[-2000:]}")
        Path(draft).replace(built)
    except subprocess.TimeoutExpired:
        raise NoFakeDevice(f"{compiler} took more than {_COMPILE_S} s to compile the fake device.") from None
    finally:
        Path(draft).unlink(missing_ok=True)
