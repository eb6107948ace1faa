"""``auto``: the candidates of all sources in one tree, sized by what they are worth."""

from draftwood.policies.auto.policy import PART

__all__ = ["PART"]
