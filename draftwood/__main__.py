"""``python -m draftwood`` is the ``draftwood`` command."""

from draftwood.cli import main

main()
