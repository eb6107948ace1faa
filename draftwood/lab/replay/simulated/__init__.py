"""A made-up target and made-up drafters, as good as one says they are."""
