"""Runs models over token trees: KV cache, attention, weights and slots.

:func:`draftwood.runner.attach.attach` turns a Hugging Face causal language model into a
:class:`draftwood.protocols.Target`. Draft models run here too.
"""
