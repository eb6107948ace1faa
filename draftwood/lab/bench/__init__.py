"""``draftwood bench``: methods against plain decoding on the same prompts, timed fairly.

Everything that decides a figure is in the output file beside it; ``docs/bench.md`` defines each.
"""
