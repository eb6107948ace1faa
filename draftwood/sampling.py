"""From logits to the target's distribution p: the only softmax over the target in decoding.

Knows nothing of models, drafters or the accept rule. Processors are transformers' own, in the order
in which ``generate`` applies them, and see at each node of a tree exactly what they would have seen
had its path been decoded token by token.
"""

import inspect
import math
from collections.abc import Sequence

import numpy as np
import torch
from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from draftwood.errors import DraftwoodError
from draftwood.history import History
from draftwood.noise import RequestNoise
from draftwood.processors import processors_of
from draftwood.protocols import Rows
from draftwood.sampling_params import SamplingParams
from draftwood.tree import TokenTree

__all__ = ["History", "RequestNoise", "Sampler", "SamplingParams", "TreeDistributions"]

# They count their own calls or run the model themselves, so they cannot be asked about a token
# that may be rejected.
_STATEFUL = (SynthIDTextWatermarkLogitsProcessor, UnbatchedClassifierFreeGuidanceLogitsProcessor)


class Sampler:
    """The processors of one request, and whether a token is drawn or the best one taken.

    Args:
        params: the request's settings. Their processors come in the order of transformers'
            ``generate``; the presence and frequency penalties stand where it puts a caller's own
            processors, before the temperature.
        prompt_length: how many of the request's tokens were given and not generated.
    """

    def __init__(self, params: SamplingParams, prompt_length: int) -> None:
        self._do_sample = params.temperature > 0
        self._processors = processors_of(params, prompt_length)
        self._copies = False  # none of these writes into the scores it is given

    @classmethod
    def given(cls, processors: Sequence[LogitsProcessor], *, do_sample: bool) -> "Sampler":
        """A sampler with processors made elsewhere, such as the list that ``generate`` prepares.

        Args:
            processors: in the order of application.
            do_sample: draw from the softmax of the processed scores; else take their argmax.

        Raises:
            DraftwoodError: a processor cannot be applied to tokens that may be rejected.
        """
        for processor in processors:
            arguments = inspect.signature(processor.__call__).parameters
            if isinstance(processor, _STATEFUL) or len(arguments) > 2:
                raise DraftwoodError(
                    f"{type(processor).__name__} needs more than token ids and scores, "
                    "which a draft cannot give it; leave it out or decode without drafting"
                )
        sampler = cls(SamplingParams(), 0)
        sampler._processors = tuple(processors)
        sampler._do_sample = do_sample
        sampler._copies = True
        return sampler

    @property
    def do_sample(self) -> bool:
        """Whether tokens are drawn; else the best one is taken."""
        return self._do_sample

    @property
    def plain(self) -> bool:
        """Whether the argmax of the raw logits is the answer."""
        return not self._processors and not self._do_sample

    def scores(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Processed scores, float32 ``[1, V]``, of raw logits ``[1, V]``, which are not changed.

        ``input_ids`` is int64 ``[1, L]``: the tokens before the one to be chosen.
        """
        scores = logits.to(torch.float32, copy=self._copies)
        for processor in self._processors:
            scores = processor(input_ids, scores)
        return scores


class TreeDistributions:
    """p after each node of one request's tree; a node costs nothing until it is asked about.

    Implements :class:`draftwood.protocols.Distributions`.

    Args:
        rows: the target's answer. Its logits' rows belong to the tree's nodes; a prefill, which
            keeps the last position's row only, is a tree of one node.
        tree: the drafted tree.
        sampler: the request's.
        history: prompt and committed tokens up to and including the root; it must not grow while
            this object is asked.
    """

    def __init__(self, rows: Rows, tree: TokenTree, sampler: Sampler, history: History) -> None:
        self._logits = rows.logits
        # The argmax may cover a whole prompt where the logits have its last position only.
        self._argmax = rows.argmax[len(rows.argmax) - rows.logits.shape[0] :]
        self._tree = tree
        self._sampler = sampler
        self._history = history
        self._length = len(history)
        self._best: dict[int, int] = {}
        self._p: dict[int, torch.Tensor] = {}

    def draw(self, node: int, uniform: float) -> int:
        """The token that ``uniform``, in [0, 1), selects from p; at temperature 0 the argmax.

        The same number selects the same token from the same p, and over all numbers tokens come
        with their probabilities; one of probability zero never does.

        Raises:
            DraftwoodError: the processors left no token to choose.
        """
        if self._sampler.plain:
            return int(self._argmax[node])
        if not self._sampler.do_sample:
            return self._argmax_of(node)
        return _race(self.probabilities(node), uniform)

    def probabilities(self, node: int) -> torch.Tensor:
        """p as float32 ``[V]`` on the logits' device; one-hot at temperature 0.

        Raises:
            DraftwoodError: the processors left no token to choose.
        """
        if not self._sampler.do_sample:
            one_hot = torch.zeros(self._logits.shape[-1], device=self._logits.device)
            one_hot[self.draw(node, 0.0)] = 1
            return one_hot
        found = self._p.get(node)
        if found is None:
            found = torch.softmax(self._scores(node), dim=-1)
            if math.isnan(float(found[0])):  # one bad score makes the whole softmax NaN
                raise _emptied(node)
            self._p[node] = found
        return found

    def _argmax_of(self, node: int) -> int:
        found = self._best.get(node)
        if found is None:
            scores = self._scores(node)
            found = int(scores.argmax())
            if not float(scores[found]) > -math.inf:
                raise _emptied(node)
            self._best[node] = found
        return found

    def _scores(self, node: int) -> torch.Tensor:
        if len(self._history) != self._length:
            raise DraftwoodError("the history grew; ask a tree's distributions before committing")
        input_ids = self._history.view(self._tree.path_tokens(node)).to(self._logits.device)
        return self._sampler.scores(input_ids, self._logits[node : node + 1])[0]


def _race(p: torch.Tensor, uniform: float) -> int:
    """Winner of a race of exponential clocks with rates p, which token i wins with probability p_i.

    The clocks are a function of ``uniform`` alone. An inverse cumulative sum would be simpler, but
    a rounding error in p moves every one of its V boundaries a little, and some draw falls between;
    here an error matters only where the two fastest clocks nearly tie.
    """
    bits = np.random.Philox(key=int(uniform * 2.0**53))
    clocks = np.random.Generator(bits).standard_exponential(p.shape[0])
    np.maximum(clocks, np.finfo(np.float64).tiny, out=clocks)
    return int((p / torch.from_numpy(clocks).to(p.device)).argmax())


def _emptied(node: int) -> DraftwoodError:
    return DraftwoodError(
        f"no token can follow node {node}: its scores are all -inf or not numbers; "
        "ban fewer tokens or check the logits processors"
    )
