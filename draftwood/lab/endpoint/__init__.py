"""Checks of a server's claim that its speculative decoding is lossless.

A server of the OpenAI API is asked the same requests with and without speculation, and the answers
are compared: greedy texts, texts with penalties and biases, ends, seeds, log probabilities, and the
distribution of short samples. A difference that rounding explains is told from a fault by the gap
between the two tokens' log probabilities.
"""
