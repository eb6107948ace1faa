"""A package with a tiny quantised Llama, installed on ``sys.path`` as a packaged model."""

from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from tokenizers import pre_tokenizers

from draftwood.models.packaged import PACKAGED

NAME = "smollm2"
MODEL = PACKAGED[NAME]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_WIDTH, _INNER, _CONTEXT, _LAYERS = 32, 64, 2048, 4
_SHAPES = {
    "attn_norm": (_WIDTH,),
    "ffn_norm": (_WIDTH,),
    "attn_q": (_WIDTH, _WIDTH),
    "attn_k": (16, _WIDTH),
    "attn_v": (16, _WIDTH),
    "attn_output": (_WIDTH, _WIDTH),
    "ffn_gate": (_INNER, _WIDTH),
    "ffn_up": (_INNER, _WIDTH),
    "ffn_down": (_WIDTH, _INNER),
}


def install(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = MODEL.version
) -> Path:
    """Put a fake of the package that ``smollm2`` comes with on the path; returns its GGUF file."""
    facts = directory / f"{MODEL.distribution.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {MODEL.distribution}\nVersion: {version}\n"
    )
    file = directory / MODEL.file
    file.parent.mkdir()
    write(file)
    monkeypatch.syspath_prepend(directory)
    return file


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package seem not to be installed."""

    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("draftwood.models.packaged.distribution", missing)


def write(path: Path) -> None:
    """Write a Llama with Q4_1 matrices, a byte-level tokenizer and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*_SPECIAL, *alphabet, "ab", "zq"]
    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_token_types([control] * len(_SPECIAL) + [normal] * (len(alphabet) + 2))
    writer.add_token_merges(["a b", "z q"])  # transformers 5.17 reads a list of one as its text
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT)
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(words), _WIDTH),
        "output_norm.weight": (_WIDTH,),
        **{f"blk.{i}.{name}.weight": s for i in range(_LAYERS) for name, s in _SHAPES.items()},
    }
    for name, shape in shapes.items():
        drawn = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, drawn)
        else:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, quantize(drawn, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
