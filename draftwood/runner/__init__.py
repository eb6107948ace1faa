"""Everything that touches the target model: its cache, attention, weights and slots.

:func:`draftwood.runner.attach.attach` turns a Hugging Face causal language model into a
:class:`draftwood.protocols.Target`. Nothing here knows how trees are drafted or accepted.
"""
