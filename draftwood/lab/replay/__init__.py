"""Decoding without a model: runs that were recorded, and runs that are made up.

A recording (:mod:`draftwood.lab.replay.recording`) holds what a target said along its own texts.
The engine then runs any method over it, with the same drafters, policy and verifier as a live run,
and comes to the same trees. docs/replay.md has the format and what may be compared.
"""
