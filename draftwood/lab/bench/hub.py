"""Rows of a dataset on the Hugging Face Hub, or in a local folder that ``datasets`` can load.

Written ``hf:OWNER/NAME[:CONFIG][:SPLIT]``. A single name after the dataset's is a configuration if
there is such a one, else a split. Without a split it is ``test``, or the only one there is. Knows
no format of prompts, and runs no code of a dataset: ``datasets`` 4 and later cannot, and earlier
ones are refused.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench.formats._entry import Row

PREFIX = "hf:"
_EXTRA = "datasets"


@dataclass(frozen=True)
class Named:
    """A source's parts.

    Attributes:
        path: what ``datasets`` loads.
        options: configuration, split, or one of them that is not told apart yet.
    """

    path: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """One split of a dataset as it was loaded.

    Attributes:
        config: its configuration, the default one named too.
        split: its name.
        revision: commit of the dataset on the Hub; of a local folder a hash of its files. None if
            it is not known.
        rows: all members that are not null, row by row.
    """

    config: str
    split: str
    revision: str | None
    rows: tuple[Mapping[str, object], ...]


def rows(source: str) -> list[Row]:
    """All rows of a split, in order.

    Raises:
        DraftwoodError: the name is malformed, ``datasets`` is missing or too old, or there is no
            such dataset, configuration or split.
    """
    found = load(source).rows
    return [Row(f"{source}, row {i + 1}", i, values) for i, values in enumerate(found)]


def name(source: str) -> str:
    """Name of the dataset without its owner."""
    return parse(source).path.rstrip("/").rpartition("/")[2]


def origin(source: str) -> dict[str, object]:
    """What tells these rows from others of the same name: revision, and a digest of the rows."""
    found = load(source)
    digest = hashlib.sha256()
    for values in found.rows:
        line = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
        digest.update(f"{line}\n".encode())
    return {
        "dataset": source,
        "config": found.config,
        "split": found.split,
        "revision": found.revision,
        "sha256": digest.hexdigest(),
    }


def parse(source: str) -> Named:
    """The parts of a name.

    Raises:
        DraftwoodError: it is not of the form above.
    """
    path, *options = source.removeprefix(PREFIX).split(":")
    if not path or len(options) > 2 or not all(options):
        raise DraftwoodError(f"{source!r} is no dataset: write hf:OWNER/NAME[:CONFIG][:SPLIT]")
    return Named(path, tuple(options))


@cache  # The run's prompts and their provenance must be of the same revision.
def load(source: str) -> Split:
    """The split that a name means; loaded once in a process."""
    named = parse(source)
    datasets = _library(source)
    try:
        config, wanted = _options(datasets, named)
        builder = datasets.load_dataset_builder(named.path, config)
        builder.download_and_prepare()
        split = _split(source, wanted, list(builder.info.splits))
        data = builder.as_dataset(split=split)
        # A table has every column in every row; what a row does not have is null there.
        members = tuple({k: v for k, v in row.items() if v is not None} for row in data)
    except DraftwoodError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        said = " ".join(str(error).split())
        raise DraftwoodError(f"cannot read prompts from {source}: {said}") from error
    return Split(builder.config.name, split, builder.hash, members)


def _library(source: str) -> ModuleType:
    need("datasets", _EXTRA)
    datasets = importlib.import_module("datasets")
    if int(datasets.__version__.partition(".")[0]) < 4:
        raise DraftwoodError(
            f"{source} needs datasets 4 or later, which runs no code of a dataset, and "
            f"{datasets.__version__} is installed: pip install 'draftwood[{_EXTRA}]'"
        )
    return datasets


def _options(datasets: ModuleType, named: Named) -> tuple[str | None, str | None]:
    if len(named.options) != 1:
        config, split = named.options or (None, None)
        return config, split
    option = named.options[0]
    if option in datasets.get_dataset_config_names(named.path):
        return option, None
    return None, option


def _split(source: str, wanted: str | None, there: Sequence[str]) -> str:
    if wanted is None and len(there) == 1:
        return there[0]
    if (wanted or "test") in there:
        return wanted or "test"
    lacking = f"has no {wanted!r}, neither configuration nor split" if wanted else "has no test"
    raise DraftwoodError(f"{source} {lacking}: its splits are {', '.join(there)}")
