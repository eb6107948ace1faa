"""The machine and the software on it, as far as they decide how fast a model decodes."""

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from draftwood.costs import busy
from draftwood.costs.environment import usable_cores
from draftwood.costs.store import device_name
from draftwood.engine.memory import readable
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE, cache_directory, check_writable
from draftwood.kernels.compiled import VARIABLE
from draftwood.kernels.functions import kernels_version, lacking
from draftwood.lab.bench.provenance import versions
from draftwood.lab.doctor.finding import Advice, Finding, doctor_command
from draftwood.lab.free_memory import free_memory


def machine_findings(device: torch.device, threads: int | None, model: str = "") -> list[Finding]:
    """What holds for every model on this machine.

    Args:
        device: where models will run.
        threads: CPU threads that were asked for; None: torch's choice.
        model: that was named, for commands; empty: none.
    """
    found = [
        Finding("versions", ", ".join(f"{name} {one}" for name, one in versions().items())),
        Finding("device", f"{device_name(device)} ({device}), {platform.platform()}"),
    ]
    used = threads or torch.get_num_threads()
    if device.type == "cpu":
        found += [threads_finding(used, usable_cores(), model)]
        found += [kernels_finding(kernels_version(), sys.platform, os.environ, model, lacking())]
    else:
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
        found += [triton_finding(triton_version(), compiler, model)]
    found += [load_finding(busy.warning(used), model)]
    free = free_memory(device)
    found += [Finding("free memory", "unknown" if free is None else readable(free))]
    return [*found, cache_finding(cache_directory(), model)]


def threads_finding(threads: int, cores: int, model: str = "") -> Finding:
    """Whether torch has no more threads than there are cores."""
    text = f"{threads} for {cores} cores"
    if threads <= cores:
        return Finding("threads", text)
    command = doctor_command(model, f"--threads {cores}")
    help_ = Advice("more threads than cores wait for one another", command)
    return Finding("threads", text, "warning", (help_,))


def kernels_finding(
    compiled: str,
    system: str,
    environment: Mapping[str, str],
    model: str = "",
    lacking: str = "",
) -> Finding:
    """Whether the kernels for a CPU have been compiled.

    Args:
        compiled: version of the kernels; empty without.
        system: as ``sys.platform``.
        environment: variables.
        model: for commands; empty: none.
        lacking: what they lack of PyTorch, a clause; empty: nothing.
    """
    if compiled:
        return Finding("kernels", "compiled for this processor")
    if environment.get(VARIABLE, "").lower() == "off":
        text = f"not used, because {VARIABLE}=off"
        help_ = Advice("let them be used", f"unset {VARIABLE}")
    elif system.startswith("linux") and lacking:
        text = f"not used: {lacking}"
        need = "install PyTorch from its own packages, which have GNU's OpenMP"
        help_ = Advice(need, "pip install --force-reinstall torch")
    elif system.startswith("linux"):
        text = "not compiled: PyTorch computes instead, in more time"
        need = "install a C++ compiler (g++ 10 or newer, or clang++), or name one that is there"
        help_ = Advice(need, f"CXX=COMPILER {doctor_command(model)}")
    else:
        return Finding("kernels", "none for this system: PyTorch computes")
    return Finding("kernels", text, "note", (help_,))


def triton_version() -> str:
    """The version of Triton; empty if it is not installed."""
    for package in ("triton", "triton-windows"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def triton_finding(installed: str, compiler: str | None, model: str = "") -> Finding:
    """Whether the kernels for a GPU can be compiled.

    Args:
        installed: version of Triton; empty without.
        compiler: for C, which Triton calls; None: not found.
        model: for commands; empty: none.
    """
    without = "PyTorch's attention with masks instead, and no CUDA graphs"
    if not installed:
        help_ = Advice("install Triton", "pip install triton")
        return Finding("kernels", f"no Triton: {without}", "warning", (help_,))
    if compiler is None:
        need = "install a C compiler (gcc or clang), or name one that is there"
        help_ = Advice(need, f"CC=COMPILER {doctor_command(model)}")
        text = f"Triton {installed} finds no C compiler: {without}"
        return Finding("kernels", text, "warning", (help_,))
    return Finding("kernels", f"Triton {installed}")


def load_finding(warning: str | None, model: str = "") -> Finding:
    """Whether other processes leave the cores free.

    Args:
        warning: of :func:`busy.warning`.
        model: for commands; empty: none.
    """
    if warning is None:
        return Finding("other load", "the cores are free")
    help_ = Advice(
        "what is timed now is too slow; look again when they have ended", doctor_command(model)
    )
    return Finding("other load", warning, "warning", (help_,))


def cache_finding(directory: Path, model: str = "") -> Finding:
    """Whether measurements and compiled kernels can be kept."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        check_writable(directory / "probe")
    except (OSError, DraftwoodError):
        command = f"{CACHE_VARIABLE}=DIRECTORY {doctor_command(model)}"
        help_ = Advice("measurements are made anew in every run; name another place", command)
        return Finding("cache", f"{directory} cannot be written to", "warning", (help_,))
    return Finding("cache", str(directory))
