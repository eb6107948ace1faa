"""CPU optimisations for forwards over few tokens: packed weights, fused norms, direct calls."""
