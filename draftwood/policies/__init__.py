"""How candidates become a tree: one file per policy, the file name is its name."""
