"""The plugin of SGLang: ``--speculative-algorithm DRAFTWOOD`` verifies Draftwood's trees.

SGLang calls :func:`register` in each of its processes, by the entry point ``sglang.srt.plugins``.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import PackageNotFoundError, version

logger = logging.getLogger(__name__)

NAME = "DRAFTWOOD"
"""What ``--speculative-algorithm`` takes."""

HOOK = "DRAFTWOOD_SGLANG_HOOK"
"""Variable that, at 1, has SGLang's own NGRAM draft with Draftwood as well."""

SUPPORTED = "0.5.23"
"""The version of SGLang whose internals this plugin was written for."""


def register() -> None:
    """Register the algorithm; with another version of SGLang an error is logged instead."""
    try:
        found = version("sglang")
    except PackageNotFoundError:
        found = "none"
    if found != SUPPORTED:
        # SGLang swallows exceptions of plugins, and then says that it knows no such algorithm.
        logger.error(
            "Draftwood's plugin is for sglang %s, and this is %s: --speculative-algorithm %s is "
            "not available; install that version, or a Draftwood for this one",
            SUPPORTED,
            found,
            NAME,
        )
        return
    from draftwood.integrations.engines.sglang.algorithm import hook_ngram, register_algorithm

    register_algorithm()
    if os.environ.get(HOOK) == "1":
        hook_ngram()
