"""Checks that a method's output has the target's distribution.

A policy and a verifier are enumerated exactly over a vocabulary of three tokens. On a real model,
samples are counted against the target's distribution by a chi-square test, which can refute
losslessness but not prove it.
"""
