"""Recording files: safetensors, with JSON in the header; docs/replay.md describes the format."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from draftwood.errors import DraftwoodError
from draftwood.files import Count, decode, encode, write_result
from draftwood.lab.replay.recording import (
    ModelFacts,
    RecordedPrompt,
    Recording,
    RecordingSettings,
    Text,
)
from draftwood.lab.replay.rows import PathTrie, RankedRows

VERSION = 1
"""Version of the format; other versions are refused."""

_KEY = "draftwood_recording"
_SAMPLE = 4096

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _Prompt:
    id: str
    task: str
    set: str
    seed: int
    turns: Count


@dataclass(frozen=True)
class _Header:
    version: int
    model: ModelFacts
    asked: RecordingSettings
    prompts: tuple[_Prompt, ...]
    drafts: tuple[str, ...]
    rooted: Mapping[str, bool]


def write(path: Path, recording: Recording) -> None:
    """Write a recording, whole or not at all.

    Raises:
        OSError: ``path`` cannot be written; the message says where the recording is instead.
    """
    texts = [text for prompt in recording.prompts for text in prompt.texts]
    names = sorted({name for text in texts for name in text.drafts})
    arrays: Arrays = {
        "text.context": np.array([text.context for text in texts], dtype=np.int32),
        "text.answer": np.array([text.answer for text in texts], dtype=np.int32),
        **_ragged("main", [text.paths.main for text in texts]),
        **_ragged("beside", [text.paths.tokens for text in texts]),
        "beside.parents": _joined([text.paths.parents for text in texts], np.int32),
        **_ranked("rows", [text.rows for text in texts]),
    }
    for i, name in enumerate(names):
        arrays |= _ranked(f"draft.{i}", [text.drafts.get(name, RankedRows(0)) for text in texts])
    prompts = [_Prompt(p.id, p.task, p.set, p.seed, len(p.texts)) for p in recording.prompts]
    header = _Header(
        VERSION, recording.model, recording.settings, tuple(prompts), tuple(names), recording.rooted
    )
    write_result(path, save(arrays, metadata={_KEY: json.dumps(encode(header))}))


def read(path: Path) -> Recording:
    """Read a recording.

    Raises:
        DraftwoodError: the file cannot be read, or is not a recording of this version.
    """
    try:
        with safe_open(path, "np") as file:
            header = json.loads((file.metadata() or {}).get(_KEY, "null"))
            if not isinstance(header, dict) or header.get("version") != VERSION:
                raise DraftwoodError(
                    f"{path} is not a version-{VERSION} recording: make one with 'draftwood record'"
                )
            arrays: Arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise DraftwoodError(f"cannot read the recording {path}: {error}") from error
    model = header.get("model")
    if isinstance(model, dict):
        model.setdefault("fingerprint", None)  # recordings made before there was one
    try:
        return _recording(decode(_Header, header, "header"), arrays)
    except (DraftwoodError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DraftwoodError(
            f"the recording {path} is damaged ({type(error).__name__}: {error}): make it anew"
        ) from error


def digest(model: torch.nn.Module) -> str:
    """SHA-256 (32 digits) of the names, shapes, dtypes and sampled values of all parameters.

    Call it before the model is attached, which may change the layout of its weights.
    """
    found = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // _SAMPLE)
        sample = flat[::step].cpu().contiguous()
        found.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        found.update(sample.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def _recording(header: _Header, arrays: Arrays) -> Recording:
    given = iter(_texts(arrays, header.drafts))
    prompts = [
        RecordedPrompt(p.id, p.task, p.set, p.seed, [next(given) for _ in range(p.turns)])
        for p in header.prompts
    ]
    return Recording(header.model, header.asked, prompts, dict(header.rooted))


def _texts(arrays: Arrays, names: Sequence[str]) -> list[Text]:
    count = len(arrays["text.context"])
    main, beside = _split(arrays, "main", "main"), _split(arrays, "beside", "beside")
    parents = _split(arrays, "beside", "beside.parents")
    rows = _unranked(arrays, "rows", count)
    drafts = {name: _unranked(arrays, f"draft.{i}", count) for i, name in enumerate(names)}
    return [
        Text(
            int(arrays["text.context"][i]),
            int(arrays["text.answer"][i]),
            PathTrie(main(i).tolist(), parents(i).tolist(), beside(i).tolist()),
            rows[i],
            {name: of_all[i] for name, of_all in drafts.items() if len(of_all[i])},
        )
        for i in range(count)
    ]


def _joined(parts: Sequence[Sequence[int]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.array(part, dtype=dtype) for part in parts] or [np.empty(0, dtype)])


def _ragged(name: str, parts: Sequence[Sequence[int]]) -> Arrays:
    return {name: _joined(parts, np.int32), f"{name}.offsets": _offsets(list(map(len, parts)))}


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64)


def _ranked(name: str, tables: Sequence[RankedRows]) -> Arrays:
    width = max((table.width for table in tables), default=0)
    tokens = np.full((sum(map(len, tables)), width), -1, dtype=np.int32)
    values = np.full(tokens.shape, -np.inf, dtype=np.float32)
    offsets = _offsets(list(map(len, tables)))
    for table, start, stop in zip(tables, offsets, offsets[1:], strict=False):
        tokens[start:stop, : table.width] = table.tokens
        values[start:stop, : table.width] = table.values
    return {
        f"{name}.keys": _joined([table.keys for table in tables], np.int64),
        f"{name}.asked": _joined([table.asked for table in tables], np.int32),
        f"{name}.tokens": tokens,
        f"{name}.values": values,
        f"{name}.offsets": offsets,
    }


def _unranked(arrays: Arrays, name: str, count: int) -> list[RankedRows]:
    keys, asked, tokens, values = (
        _split(arrays, name, f"{name}.{part}") for part in ("keys", "asked", "tokens", "values")
    )
    width = arrays[f"{name}.tokens"].shape[1]
    return [
        RankedRows(width, keys(i).tolist(), asked(i).tolist(), tokens(i), values(i))
        for i in range(count)
    ]


def _split(arrays: Arrays, name: str, what: str) -> Callable[[int], NDArray[Any]]:
    offsets, whole = arrays[f"{name}.offsets"].tolist(), arrays[what]
    if offsets[-1] != len(whole):
        raise ValueError(f"{what} has {len(whole)} entries instead of {offsets[-1]}")
    return lambda i: whole[offsets[i] : offsets[i + 1]]
