"""SGLang's worker that drafts with Draftwood; all else is that of its NGRAM."""

from __future__ import annotations

from typing import Any

from sglang.srt.distributed.parallel_state import get_attn_tp_group
from sglang.srt.speculative import ngram_worker

from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.sglang.batch import batch_drafts_of


class DraftwoodWorker(ngram_worker.NGRAMWorker):  # type: ignore[misc]
    """Drafts trees for the running requests and has them verified."""

    def __init__(self, *given: Any, **named: Any) -> None:
        # Its index of n-grams would be compiled and filled for nothing.
        corpus, ngram_worker.NgramCorpus = ngram_worker.NgramCorpus, NoCorpus
        try:
            super().__init__(*given, **named)
        finally:
            ngram_worker.NgramCorpus = corpus
        self._draftwood = batch_drafts_of(self, get_attn_tp_group())

    def clear_cache_pool(self) -> None:
        """Forget all text: SGLang's ``flush_cache``."""
        super().clear_cache_pool()
        self._draftwood.clear()

    def forward_batch_generation(self, batch: Any, *given: Any, **named: Any) -> Any:
        """Draft, verify and commit; then read the likeliest tokens of the verified rows."""
        result = super().forward_batch_generation(batch, *given, **named)
        self._draftwood.verified(result)
        return result

    def _prepare_draft_tokens(self, batch: Any) -> Any:
        return self._draftwood.prepared(batch)

    def _update_ngram_corpus(self, batch: Any) -> None:
        """Sources learn from the next step's texts."""


class NoCorpus:
    """Stands where NGRAM keeps its index, which is not used."""

    def __init__(self, **_: Any) -> None: ...

    def reset(self) -> None:
        """There is nothing to forget."""

    def erase_match_state(self, rids: list[str]) -> None:
        """There is nothing to forget."""

    def list_external_corpora(self) -> dict[str, int]:
        """None."""
        return {}

    def load_external_corpus_named(self, corpus_id: str, token_chunks: Any) -> int:  # noqa: ARG002
        """Refuse SGLang's corpora.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(
            f"the corpus {corpus_id} cannot be added: give Draftwood's memory a text, "
            "DRAFTWOOD_METHOD=auto:also=memory:memory.text=FILE"
        )
