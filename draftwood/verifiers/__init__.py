"""Which path of a tree is kept: one file per accept rule, the file name is its name."""
