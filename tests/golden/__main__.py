"""``python -m tests.golden FILE...``: recompute the worked cases of JSON files.

Exit code 0: all cases of all files agree; 1: some differ; 2: a file cannot be read as one of the
known forms.
"""

import sys
from collections.abc import Sequence

from draftwood.errors import DraftwoodError
from tests.golden.forms import check_file

AGREE, DIFFER, UNREADABLE = 0, 1, 2


def main(files: Sequence[str]) -> int:
    """Print one line per file, after one line per differing case; return the exit code."""
    if not files:
        print("usage: python -m tests.golden FILE...", file=sys.stderr)  # noqa: T201
        return UNREADABLE
    code = AGREE
    for file in files:
        try:
            checks = check_file(file)
        except DraftwoodError as error:
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
            code = UNREADABLE
            continue
        failed = [check for check in checks if check.complaints]
        for check in failed:
            print(f"{file}: {check}")  # noqa: T201
        numbers = sum(check.compared for check in checks)
        agreeing = len(checks) - len(failed)
        print(f"{file}: {agreeing} of {len(checks)} cases agree, {numbers} numbers compared")  # noqa: T201
        code = max(code, DIFFER if failed else AGREE)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
