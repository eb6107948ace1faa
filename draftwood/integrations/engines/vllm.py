"""The proposer of vLLM (``method="custom_class"``), whose targets verify one chain.

    vllm serve MODEL --speculative-config '{"method": "custom_class",
        "model": "draftwood.integrations.engines.vllm.Proposer", "num_speculative_tokens": 8}'

vLLM gives a proposer the tokens of all requests and no ids, so each is recognised by its text. It
gives neither logits nor sampling parameters: sources that learn from the target's rows learn from
the text, where the token that came next stands for the likeliest one. Drafts are deterministic,
which vLLM's rejection sampler takes for one-hot proposals, so its outputs keep their distribution.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.integrations.engines.drafts import USUAL_COSTS, EngineDrafts
from draftwood.integrations.engines.encoding import encoding, vocabulary_of
from draftwood.integrations.engines.environment import costs_of, method_of, refuse_shared_file
from draftwood.integrations.engines.texts import PATIENCE, TextIds

logger = logging.getLogger("vllm.draftwood")  # of the others vLLM shows warnings only

DEFAULT_METHOD = "auto:also=memory:context.lengths=8+5+4+3+2+1:adjacency.shared=true"
"""What drafts where ``DRAFTWOOD_METHOD`` names nothing else.

Elsewhere the adjacency table continues short matches, by what the target ranked. Here there are no
logits, so it learns from the texts of all requests, and the context is searched for short matches
as well.
"""


class Proposer:
    """Proposes a chain for each request, of 0 to ``num_speculative_tokens`` tokens.

    Args:
        vllm_config: vLLM's ``VllmConfig``.

    Raises:
        DraftwoodError: ``DRAFTWOOD_METHOD`` or ``DRAFTWOOD_COSTS`` cannot be used, or several ranks
            would write one file.
    """

    def __init__(self, vllm_config: Any) -> None:
        most = int(vllm_config.speculative_config.num_speculative_tokens)
        model = vllm_config.model_config
        method = method_of(DEFAULT_METHOD, most, chain=True)
        parallel = vllm_config.parallel_config
        # A dense model's ranks are told that they are alone, but for their index.
        index = getattr(parallel, "data_parallel_index", 0)
        sizes = (parallel.tensor_parallel_size, parallel.data_parallel_size, index + 1)
        refuse_shared_file(method, sizes)
        tokenizer = partial(_tokenizer, model)
        self.drafts = EngineDrafts(
            method,
            vocab_size=int(model.get_vocab_size()),
            context=int(model.max_model_len),
            costs=costs_of(USUAL_COSTS),
            encode=encoding(tokenizer),
            vocabulary=vocabulary_of(method, tokenizer),
            read_text=True,
        )
        # Each stage of a pipeline has a batch of its own, which come in turns.
        stages = int(getattr(parallel, "pipeline_parallel_size", 1))
        self._texts = TextIds(patience=PATIENCE + stages - 1)
        # Ray may not hand variables on to its processes.
        logger.info("Draftwood drafts with %s, up to %d tokens", method.name, most)

    def load_model(self, *_: Any, **__: Any) -> None:
        """There is no model to load."""

    def dummy_run(self, *_: Any, **__: Any) -> None:
        """There is nothing to warm up."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.integer[Any]],
        token_ids_cpu: NDArray[np.int32],
        slot_mappings: object = None,  # noqa: ARG002
    ) -> list[list[int]]:
        """The drafted tokens of each row of the batch.

        Args:
            sampled_token_ids: tokens that the last step has added to each row; none while a prompt
                is being read.
            num_tokens_no_spec: tokens of each row, these included.
            token_ids_cpu: int32 ``[rows, n]``, the tokens.
            slot_mappings: not used.
        """
        try:
            return self._proposed(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        except Exception as error:  # noqa: BLE001 - the engine goes on
            self.drafts.report(error)
            return [[] for _ in sampled_token_ids]

    def _proposed(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.integer[Any]],
        token_ids_cpu: NDArray[np.int32],
    ) -> list[list[int]]:
        rows = [row for row, new in enumerate(sampled_token_ids) if len(new)]
        texts = [token_ids_cpu[row, : int(num_tokens_no_spec[row])] for row in rows]
        found = self._texts.recognised(texts, [len(sampled_token_ids[row]) for row in rows])
        for number in self._texts.ended():
            self.drafts.end(number)
        for each, text in zip(found, texts, strict=True):
            if each.known and self.drafts.length(each.id) == each.known:
                self.drafts.commit(each.id, text[each.known :].tolist())
            else:
                self.drafts.begin(each.id, text.tolist())
        proposed: list[list[int]] = [[] for _ in sampled_token_ids]
        for row, tree in zip(rows, self.drafts.draft([each.id for each in found]), strict=True):
            if tree is not None:
                proposed[row] = tree.tokens[1:].tolist()
        return proposed


def _tokenizer(model_config: Any) -> Any:
    """The tokenizer of vLLM's ``ModelConfig``; None if vLLM was told to load none."""
    from vllm.tokenizers import cached_tokenizer_from_config

    return cached_tokenizer_from_config(model_config)
