"""``model.generate`` through Draftwood, as a checkpoint's own ``custom_generate/generate.py``."""

from transformers import GenerationMixin

import draftwood


def generate(*inputs, model, custom_generate=None, **kwargs):
    custom_generate = custom_generate or draftwood.auto()
    return GenerationMixin.generate(model, *inputs, custom_generate=custom_generate, **kwargs)
