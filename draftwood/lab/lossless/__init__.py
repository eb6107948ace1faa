"""Makes sure that a method's output law is the target's: exactly on tiny laws, then by sampling.

Knows no part by name; what is enumerated are whatever policies and verifiers are registered.
"""
