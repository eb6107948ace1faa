"""A verified tree as an SVG picture. Tokens are given by their texts."""

from draftwood.lab.picture.layout import LONGEST
from draftwood.lab.picture.svg import svg

__all__ = ["LONGEST", "svg"]
