"""`python -m draftwood.train` is `draftwood train`."""

import sys

from draftwood.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
