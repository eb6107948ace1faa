"""Step costs: seconds by size, measured, fitted, cached, refined online or predicted.

Policies read :mod:`draftwood.costs.curve`, which is plain numbers. Only
:mod:`draftwood.costs.measure` runs a model.
"""
