"""Sampling from the target's logits: parameters, logits processors, random numbers."""
