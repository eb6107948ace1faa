"""SGLang's attention in PyTorch, with the masks of trees, which its own leaves out."""

import os
from typing import Any


def register() -> None:
    """Take the place of the attention backend ``torch_native`` on a CPU."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    @register_attention_backend("torch_native")  # type: ignore[untyped-decorator]
    def made(runner: Any) -> Any:
        return _backend()(runner)


def _backend() -> type:
    import torch
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
    from torch.nn.functional import scaled_dot_product_attention

    class TreeAttention(TorchNativeAttnBackend):  # type: ignore[misc]
        def forward_extend(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
        ) -> Any:
            if not forward_batch.forward_mode.is_target_verify():
                return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
            if save_kv_cache and k is not None:
                place = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
                self.token_to_kv_pool.set_kv_buffer(layer, place, k, v)
            spec = forward_batch.spec_info
            nodes = spec.draft_token_num
            masks = spec.custom_mask.view(-1, nodes, nodes).bool()
            queries = q.view(-1, nodes, layer.tp_q_head_num, layer.qk_head_dim).transpose(1, 2)
            keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
            values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
            found = []
            for row, length in enumerate(forward_batch.seq_lens.tolist()):
                pool_row = forward_batch.req_pool_indices[row]
                places = self.req_to_token_pool.req_to_token[pool_row, : length + nodes].long()
                text = torch.ones(nodes, length, dtype=torch.bool)
                own = scaled_dot_product_attention(
                    queries[row],
                    keys[places].transpose(0, 1).to(q.dtype),
                    values[places].transpose(0, 1).to(q.dtype),
                    attn_mask=torch.cat([text, masks[row]], dim=1),
                    scale=layer.scaling,
                    enable_gqa=layer.tp_q_head_num != layer.tp_k_head_num,
                )
                found.append(own.transpose(0, 1))
            return torch.cat(found).reshape(len(q), -1)

    return TreeAttention
