"""The functions of ``sgl_kernel`` that SGLang calls on a CPU, in PyTorch.

There is no wheel of the real package for CPUs. What is not here raises an error when it is called.
"""

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor

__version__ = "0.4.10"


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    width: int,
) -> None:
    """Places of the tokens from start to end of each request, one request behind the other."""
    spans = _spans(req_pool_indices, start_offset, end_offset)
    pieces = [req_to_token[row, start:end] for row, start, end in spans]
    found = torch.cat(pieces)
    out_cache_loc[: len(found)] = found.to(out_cache_loc.dtype)


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    width: int,
) -> None:
    """The inverse: store the places of the tokens from start to end of each request."""
    done = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        own = out_cache_loc[done : done + end - start]
        req_to_token[row, start:end] = own.to(req_to_token.dtype)
        done += end - start


def _spans(rows: Tensor, starts: Tensor, ends: Tensor) -> list[tuple[int, int, int]]:
    """The row of each request in the pool, and its first token and the one behind its last."""
    return list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Places of the accepted nodes, packed; an index of -1 is none."""
    flat = accept_index.flatten()
    found = out_cache_loc[flat[flat >= 0].long()]
    accept_out_cache_loc[: len(found)] = found.to(accept_out_cache_loc.dtype)


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request."""
    requests = torch.arange(len(accept_lens))
    last = requests * accept_stride + accept_lens.long() - 1
    bonus_tokens[: len(requests)] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def copy_all_layer_kv_cache_cpu(
    pointers: Tensor, strides: Tensor, target: Tensor, source: Tensor
) -> None:
    """Copy tokens' keys and values from some places to others, in every buffer."""
    to, of = target.numpy(), source.numpy()
    rows = 1 + max(int(to.max(initial=-1)), int(of.max(initial=-1)))
    for pointer, stride in zip(pointers.tolist(), strides.tolist(), strict=True):
        memory = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8))
        buffer = np.ctypeslib.as_array(memory, shape=(rows, stride))
        buffer[to] = buffer[of].copy()


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow the target's tokens down each tree; what is accepted, and the token behind it."""
    for row in range(len(candidates)):
        tokens, places = candidates[row].tolist(), retrive_index[row].tolist()
        first, following = retrive_next_token[row].tolist(), retrive_next_sibling[row].tolist()
        wanted = target_predict[row].tolist()
        node, accepted = 0, 0
        accept_index[row, 0] = places[0]
        while accepted + 1 < accept_index.shape[1]:
            below = first[node]
            while below >= 0 and tokens[below] != wanted[node]:
                below = following[below]
            if below < 0:
                break
            predicts[places[node]] = wanted[node]
            node, accepted = below, accepted + 1
            accept_index[row, accepted] = places[node]
        predicts[places[node]] = wanted[node]
        accept_token_num[row] = accepted


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"sgl_kernel.{name} is not available on this CPU")

    return missing
