"""Compiles and loads the device guard of ``guard.cpp``."""

import ctypes
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch


@cache
def load_guard() -> ctypes.CDLL | None:
    """Register the guard in this process, if there is no device whose own guard serves."""
    if torch.cuda.is_available():
        return None
    torch_directory = Path(torch.__file__).parent
    source = Path(__file__).with_name("guard.cpp")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "guard.so"
        abi = int(torch.compiled_with_cxx11_abi())
        command = [
            *(os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC"),
            *(f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f"-I{torch_directory / 'include'}"),
            *(str(source), f"-L{torch_directory / 'lib'}", "-lc10", "-o", str(library)),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        return ctypes.CDLL(str(library))
