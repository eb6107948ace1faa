"""A verified tree as a picture: where things stand (``layout``), as SVG (``vector``) and as PNG
(``raster``).

Tokens are known by their texts only: no tokenizer, no model, no files.
"""

from draftwood.lab.picture.layout import LONGEST
from draftwood.lab.picture.svg import svg

__all__ = ["LONGEST", "svg"]
