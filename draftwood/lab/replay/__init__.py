"""Decoding without a model: from a recording of one, or from a simulation.

A recording (:mod:`draftwood.lab.replay.recording`) holds a target's output along its own answers.
The engine runs any method over it, with the drafters, policy and verifier of a live run, and grows
the same trees. docs/replay.md describes the format and which figures may be compared.
"""
