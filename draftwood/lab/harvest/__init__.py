"""Makes a prepared adjacency table: what a model says after the frequent pairs of a text."""
