"""Reads a prepared table and checks that it is of the target that drafts are made for."""

from __future__ import annotations

import logging
from pathlib import Path

from draftwood.drafters.adjacency.table import PreparedTable
from draftwood.drafters.adjacency.table_file import load
from draftwood.errors import DraftwoodError
from draftwood.protocols import Host

logger = logging.getLogger(__name__)


def fitting(path: Path, width: int, host: Host) -> PreparedTable:
    """The table in a file, for the host's target.

    The drafters of a host share it. A table that was made with other weights of the same vocabulary
    is used, because it only proposes, and the log says so once.

    Args:
        path: the file.
        width: successors that are looked up for each key.
        host: the target's; without a tokenizer the size of the vocabulary alone is compared.

    Raises:
        DraftwoodError: the file cannot be read, or the table has another vocabulary or fewer
            successors for each key.
    """
    table = host.share(("adjacency table", path), lambda: _of_target(path, host))
    if table.facts.width < width:
        raise DraftwoodError(
            f"the adjacency table {path} has {table.facts.width} successors of a key, and {width} "
            f"are asked for: set the drafter's width to {table.facts.width}, or harvest again with "
            f"--width {width}"
        )
    return table


def _of_target(path: Path, host: Host) -> PreparedTable:
    table = load(path)
    facts, info = table.facts, host.info
    other = bool(facts.vocabulary and host.vocabulary and facts.vocabulary != host.vocabulary)
    if other or facts.vocab_size != info.vocab_size:
        what = "tokenizer" if other else f"vocabulary, of {facts.vocab_size} tokens"
        found = "" if other else f" and not {info.vocab_size}"
        raise DraftwoodError(
            f"the adjacency table {path} was made with {facts.model}, which has another {what}"
            f"{found}: harvest one with this model ('draftwood harvest')"
        )
    own, theirs = info.fingerprint, facts.fingerprint
    if own is not None and theirs is not None and not own.matches(theirs):
        logger.warning(
            "the adjacency table %s was made with other weights (%s): its drafts may be accepted "
            "less often; 'draftwood harvest' makes one with this model",
            path,
            facts.model,
        )
    return table
