"""Rows of prompt sets: a local file, or a dataset that the package ``datasets`` loads.

A file has JSON lines, one JSON array or plain lines, optionally gzipped; its content decides, not
its name. A file whose first line neither is JSON nor begins with ``{`` is plain text: one prompt
per line.

A dataset is ``hf:OWNER/NAME[:CONFIG][:SPLIT]``, on the Hugging Face Hub or in a local folder. A
single name after the dataset's is a configuration if there is one of that name, else a split. The
default split is ``test``, or the only one. No code of a dataset is run: ``datasets`` before
version 4 could, and is refused.
"""

import gzip
import hashlib
import importlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench.formats._entry import SourceRow

Source = Path | str
"""A file, or the name of a dataset or of a view."""

PREFIX = "hf:"
_EXTRA = "datasets"
_GZIP = b"\x1f\x8b"
"""First bytes of every gzip file (RFC 1952, section 2.3.1)."""


@dataclass(frozen=True)
class SourceTable:
    """The rows of one source.

    Attributes:
        name: name of the file without its extensions, or of the dataset without its owner.
        rows: all rows, in order; those of a dataset without members that are null.
        origin: what a benchmark records: the source's name and a digest of its content.
    """

    name: str
    rows: tuple[SourceRow, ...]
    origin: Mapping[str, object]


def load(source: Source) -> SourceTable:
    """Read all rows of a source.

    Raises:
        DraftwoodError: the source cannot be read, or a row is no JSON object; the message has the
            place of the row.
    """
    text = str(source)
    return dataset(text) if text.startswith(PREFIX) else _file(Path(source))


def _file(path: Path) -> SourceTable:
    try:
        stored = path.read_bytes()
        content = gzip.decompress(stored) if stored.startswith(_GZIP) else stored
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DraftwoodError(f"cannot read prompts from {path}: {error}") from error
    rows: list[SourceRow] = []
    for where, item in _items(path, text):
        if not isinstance(item, dict):
            raise DraftwoodError(f"{where}: expected a JSON object, one for each prompt")
        rows.append(SourceRow(where, len(rows), item))
    origin = {"file": str(path), "sha256": hashlib.sha256(stored).hexdigest()}
    return SourceTable(Path(path.name.removesuffix(".gz")).stem, tuple(rows), origin)


def _items(path: Path, text: str) -> Iterable[tuple[str, object]]:
    """The place and the value of each row."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DraftwoodError(
                f"{path}: begins like a JSON array and is none: {error}"
            ) from error
        return [(f"{path}, item {number}", item) for number, item in enumerate(found, start=1)]
    # A JSON text may contain other line separators, where splitlines would cut it.
    split = enumerate(text.split("\n"), start=1)
    lines = [
        (f"{path}:{number}", line.removesuffix("\r")) for number, line in split if line.strip()
    ]
    if lines and _is_plain(lines[0][1]):
        return [(where, {"prompt": line}) for where, line in lines]
    return ((where, _parsed(where, line)) for where, line in lines)


def _is_plain(line: str) -> bool:
    if line.lstrip().startswith("{"):
        return False
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return True
    except ValueError:  # a number of too many digits
        return False
    return False


def _parsed(where: str, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DraftwoodError(f"{where}: not a line of JSON: {error}") from error


@cache  # A run's prompts and their recorded origin must be of one revision.
def dataset(source: str) -> SourceTable:
    """The rows of one split of a dataset; it is loaded once in a process.

    Raises:
        DraftwoodError: the name is malformed, ``datasets`` is missing or too old, or there is no
            such dataset, configuration or split.
    """
    path, *options = source.removeprefix(PREFIX).split(":")
    if not path or len(options) > 2 or not all(options):
        raise DraftwoodError(f"{source!r} is no dataset: write hf:OWNER/NAME[:CONFIG][:SPLIT]")
    datasets = _library(source)
    try:
        config, wanted = _config_and_split(datasets, path, options)
        builder = datasets.load_dataset_builder(path, config)
        builder.download_and_prepare()
        split = _split(source, wanted, list(builder.info.splits))
        # A table has every column in every row; a member that a row lacks is null there.
        members = [
            {key: value for key, value in row.items() if value is not None}
            for row in builder.as_dataset(split=split)
        ]
    except DraftwoodError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise DraftwoodError(f"cannot read prompts from {source}: {reason}") from error
    lines = (json.dumps(row, sort_keys=True, ensure_ascii=False, default=str) for row in members)
    origin = {
        "dataset": source,
        "config": builder.config.name,
        "split": split,
        "revision": builder.hash,  # a commit of the Hub, or a hash of the local files
        "sha256": hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
    }
    rows = tuple(SourceRow(f"{source}, row {i + 1}", i, row) for i, row in enumerate(members))
    return SourceTable(path.rstrip("/").rpartition("/")[2], rows, origin)


def _library(source: str) -> ModuleType:
    need("datasets", _EXTRA)
    datasets = importlib.import_module("datasets")
    if int(datasets.__version__.partition(".")[0]) < 4:
        raise DraftwoodError(
            f"{source} needs datasets 4 or later, which runs no code of a dataset, and "
            f"{datasets.__version__} is installed: pip install 'draftwood[{_EXTRA}]'"
        )
    return datasets


def _config_and_split(
    datasets: ModuleType, path: str, options: Sequence[str]
) -> tuple[str | None, str | None]:
    if len(options) == 1:
        known = options[0] in datasets.get_dataset_config_names(path)
        return (options[0], None) if known else (None, options[0])
    config, split = options or (None, None)
    return config, split


def _split(source: str, wanted: str | None, available: Sequence[str]) -> str:
    if wanted is None and len(available) == 1:
        return available[0]
    if (wanted or "test") in available:
        return wanted or "test"
    lacking = f"has no {wanted!r}, neither configuration nor split" if wanted else "has no test"
    raise DraftwoodError(f"{source} {lacking}: its splits are {', '.join(available)}")
