"""Where candidate tokens come from: one file per drafter, the file name is its name."""
