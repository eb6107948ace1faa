"""A contender that decodes with llama-cpp-python, from the weights of an untouched model.

``Llama.generate`` runs prompts one after another, with torch's number of threads, on the CPU or
with all layers on the model's GPU. Everything else is the library's default, except that a float32
model has a float32 cache, so that its tokens are comparable (the default is float16).

Every request starts with an empty cache. The library sizes the context when it opens a file, so the
file is opened again for a request longer than all before, and this is timed. The warm-up of a
benchmark has the longest prompt; without batches, no timed request opens the file again.

Sampling is the library's: its filters come before the temperature, transformers' come after. So
``top_p`` below 1 with a temperature other than 1 samples from another distribution. Its random
numbers are its own, with a seed per request.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from time import perf_counter
from typing import Any, TypeAlias

import torch

from draftwood.engine.request import Completion, FinishReason, Request
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench.llamacpp.gguf import Precision, file_of
from draftwood.lab.bench.measure import Answer, Decode
from draftwood.lab.bench.trial import tried
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import common_prefix

Lookup: TypeAlias = Callable[..., Any]
"""A ``LlamaDraftModel``: maps int32 ids ``[L]`` to drafted int32 ids."""

_BLOCK = 256
"""llama.cpp rounds contexts up to multiples of this number of tokens."""
_SEEDS = 2**32 - 1
"""llama.cpp uses this seed for "any", so it is never given."""


class LlamaCppDecoder:
    """Decodes requests one after another; their clocks start together.

    Args:
        stock: an untouched Llama; its weights are written to a file at once.
        lookup: drafter of the library's own speculative decoding; None for plain decoding.
        ahead: most tokens that ``lookup`` drafts.
        precision: of the file's matrices.

    Raises:
        DraftwoodError: a library is missing or does not support the model's device, or GGUF's Llama
            cannot represent the model.
    """

    def __init__(
        self,
        stock: Loaded,
        lookup: Lookup | None = None,
        ahead: int = 0,
        precision: Precision = "model",
    ) -> None:
        self._library = need("llama_cpp", "llamacpp")
        self._model = stock.model  # the file is deleted with the model
        self._gpu = stock.model.device.type != "cpu"
        if self._gpu and not self._library.llama_supports_gpu_offload():
            raise DraftwoodError(
                f"the target is on {stock.model.device} and the installed llama-cpp-python is for "
                "the CPU: build it with CMAKE_ARGS=-DGGML_CUDA=on, or leave its peers out"
            )
        self._path = file_of(stock.model, precision)
        self._drafts = None if lookup is None else _Drafts(lookup)
        self._ahead = ahead
        self._opened: Any = None
        self._room = 0

    def begin(self, batch: int) -> Decode:  # noqa: ARG002
        """The decoder; only the opened file outlives a call."""
        return self.decode

    def tried(self) -> "LlamaCppDecoder":
        """Decode a few tokens, then return ``self``.

        Raises:
            DraftwoodError: the installed llama.cpp cannot decode this file; the message has its
                reason.
        """
        return tried(
            self, "the installed llama-cpp-python cannot decode this model, leave its peers out"
        )

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        """Answers in order; their seconds include the wait for earlier ones."""
        asked = perf_counter()
        llama = self._with_room(max(len(r.prompt) + r.max_new_tokens for r in requests))
        return [self._answer(llama, request, asked) for request in requests]

    def _with_room(self, tokens: int) -> Any:
        """The opened file, with a context for ``tokens`` and the drafts beyond them."""
        room = -(-(tokens + self._ahead) // _BLOCK) * _BLOCK
        if room > self._room:
            if self._opened is not None:
                self._opened.close()
            self._opened = self._open(room)
            self._room = room
        return self._opened

    def _open(self, room: int) -> Any:
        threads = torch.get_num_threads()
        full = self._model.dtype == torch.float32
        cache = self._library.GGML_TYPE_F32 if full else self._library.GGML_TYPE_F16
        return self._library.Llama(
            model_path=str(self._path),
            n_ctx=room,
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=-1 if self._gpu else 0,
            main_gpu=self._model.device.index or 0,
            # Otherwise, a library built for a GPU computes large products there.
            offload_kqv=self._gpu,
            op_offload=self._gpu,
            type_k=cache,
            type_v=cache,
            # Drafting turns this on, but allocates the logits of one batch only.
            logits_all=self._drafts is not None,
            draft_model=self._drafts,
            verbose=False,
        )

    def _answer(self, llama: Any, request: Request, asked: float) -> Answer:
        drafts = [] if self._drafts is None else self._drafts.begin()
        starts: list[int] = []
        tokens: list[int] = []
        first = asked
        llama.reset()  # else the common prefix with the previous request would be reused
        llama.set_seed(request.sampling.seed % _SEEDS)
        with closing(llama.generate(list(request.ids), **_sampling(request.sampling))) as stream:
            for token in stream:
                if not tokens:
                    first = perf_counter()
                if len(drafts) > len(starts):
                    starts.append(len(tokens))
                tokens.append(int(token))
                if token in request.ends or len(tokens) == request.max_new_tokens:
                    break
        ended = perf_counter()
        reason: FinishReason = "eos" if tokens[-1] in request.ends else "length"
        plain = Tally(steps=len(tokens) - 1, committed=len(tokens) - 1)
        tally = plain if self._drafts is None else _drafted(tokens, drafts, starts)
        return Answer(
            Completion(
                tokens=tuple(tokens),
                text="",
                reason=reason,
                tally=tally,
                prompt_tokens=len(request.ids),
                ttft=first - asked,
                seconds=ended - asked,
            )
        )


class _Drafts:
    """A lookup that records its drafts, which the library does not report."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._recorded: list[Any] = []

    def begin(self) -> list[Any]:
        """Drafts of a new answer: an entry per forward, possibly empty."""
        self._recorded = []
        return self._recorded

    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        found = self._lookup(input_ids, **kwargs)
        self._recorded.append(found.tolist())  # a view of memory that will be overwritten
        return found


def _sampling(params: SamplingParams) -> dict[str, float]:
    """Arguments of ``generate``; filters that a request does not set are turned off."""
    return {
        "temp": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repeat_penalty": 1.0,
    }


def _drafted(
    tokens: Sequence[int], drafts: Sequence[Sequence[int]], starts: Sequence[int]
) -> Tally:
    """Statistics of all forwards after the prefill.

    Args:
        tokens: the answer.
        drafts: drafted tokens of each forward.
        starts: length of the answer before each forward.
    """
    ends = [*starts, len(tokens)][1:]
    accepted = sum(
        common_prefix(draft, tokens[start:end])
        for draft, start, end in zip(drafts, starts, ends, strict=True)
    )
    return Tally(
        steps=len(starts),
        committed=len(tokens) - 1,
        drafted=sum(map(len, drafts)),
        accepted=accepted,
    )
