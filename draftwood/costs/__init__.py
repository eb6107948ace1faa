"""What a step costs: curves of seconds by size, how they are measured, refined, stored, expected.

Policies that weigh a node's worth against its cost read :mod:`draftwood.costs.curve`, which is
plain numbers; only :mod:`draftwood.costs.measure` touches a model.
"""
