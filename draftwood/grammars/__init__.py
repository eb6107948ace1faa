"""Structured output: grammars, and the tokens that they allow.

A grammar library compiles a :class:`draftwood.grammars.grammar.Grammar` for a tokenizer; each is a
file of :mod:`draftwood.grammars.backends`. Knows nothing of trees and of logits.
"""
