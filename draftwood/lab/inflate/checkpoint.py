"""An inflated model as a directory that loads like any checkpoint, written whole or not at all."""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from draftwood import __version__
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.model import Agreement
from draftwood.lab.inflate.shapes import Shape

SHARD = 2 * 10**9
"""Bytes of one file of a written checkpoint."""

_GROUP = Path("/sys/fs/cgroup")
_GIGA = 1e9


def needed(parameters: int, width: int) -> int:
    """Bytes of memory to build and write this many weights of ``width`` bytes each."""
    weights = parameters * width
    return weights + min(weights, SHARD)


def check_memory(parameters: int, width: int, advice: str) -> None:
    """Refuse what would not fit into memory.

    Args:
        parameters: number of weights.
        width: bytes of each while they are in memory.
        advice: what to do instead, the end of the sentence.

    Raises:
        DraftwoodError: less is available than needed; says both.
    """
    need, free = needed(parameters, width), available()
    if need > free:
        raise DraftwoodError(
            f"{parameters / 1e9:.2f} billion parameters of {width} bytes need about "
            f"{need / _GIGA:.1f} GB of memory and {free / _GIGA:.1f} GB are available: {advice}"
        )


def check_disk(directory: Path, parameters: int, width: int) -> None:
    """Refuse a checkpoint for which ``directory`` has no room.

    Raises:
        DraftwoodError: less is free than needed; says both.
    """
    need, free = parameters * width, shutil.disk_usage(directory).free
    if need > free:
        raise DraftwoodError(
            f"the weights take {need / _GIGA:.1f} GB and {directory} has {free / _GIGA:.1f} GB "
            "left: choose another place"
        )


def available() -> float:
    """Bytes of memory that can still be had: the machine's, or the control group's if less."""
    return min(_machine(), _control_group())


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(":")
            if key == "MemAvailable":
                return int(value.split()[0]) * 1024
    except OSError:
        pass  # only Linux has the file
    # Elsewhere all of the memory: too much, but the order of magnitude is known.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _control_group() -> float:
    try:
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        # Files that were read count as used, and are given up when memory is wanted.
        files = int(dict(line.split() for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or the limit is "max"
        return float("inf")
    return max(limit - used + files, 0)


PROVENANCE = "provenance.json"


def check_place(directory: Path) -> None:
    """Refuse a place where no new directory can be put, before any work is done.

    Raises:
        DraftwoodError: there is something already, or the directory above is missing or
            read-only.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise DraftwoodError(f"{directory} is a file or a link: name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise DraftwoodError(f"{directory} is not empty: name a new directory")
    above = directory.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".draftwood-"):
            pass
    except OSError as error:
        raise DraftwoodError(f"cannot write to {above}: {error.strerror}") from error


def provenance(
    *,
    source: str,
    revision: str | None,
    small: Shape,
    large: Shape,
    parameters: int,
    dtype: str,
    seed: int,
    agreement: Agreement | None,
) -> dict[str, object]:
    """What the directory says of itself.

    Args:
        source: the small model's name.
        revision: its commit, if it comes from a hub.
        small: its shape.
        large: the inflated shape.
        parameters: number of weights, a shared one once.
        dtype: of the weights in the directory.
        seed: of the weights that nothing depends on.
        agreement: the check in float32; None if it was left out.
    """
    return {
        "what": (
            "A cost-shaped target: the function of the source, and so its text and its rates of "
            "acceptance, at the cost of a model of this shape. It is no better a model than its "
            "source, whose licence holds for it."
        ),
        "source": {"name": source, "revision": revision, "shape": asdict(small)},
        "shape": asdict(large),
        "parameters": parameters,
        "dtype": dtype,
        "seed": seed,
        "check": None if agreement is None else {"dtype": "float32", **asdict(agreement)},
        "versions": {
            "draftwood": __version__,
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
    }


def write(
    directory: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    record: Mapping[str, object],
) -> None:
    """Write everything beside ``directory``, then put it in its place in one step.

    Raises:
        DraftwoodError: it could not be written; nothing is left then.
    """
    place = directory.absolute()
    part = place.parent / f".draftwood-{secrets.token_hex(4)}"
    try:
        part.mkdir()
        model.save_pretrained(part, max_shard_size=SHARD)
        tokenizer.save_pretrained(part)
        (part / PROVENANCE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for file in part.iterdir():
            # safetensors lets nobody but the owner read what it writes.
            shutil.copymode(part / PROVENANCE, file)
        # Takes the place of an empty directory, and of nothing else.
        part.rename(place)
    except (OSError, ValueError) as error:
        raise DraftwoodError(f"cannot write {directory}: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
