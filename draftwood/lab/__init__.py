"""The laboratory: benchmarks, replay, proofs, theory and training; only ``cli`` imports it."""
