"""What makes forwards of a few tokens cheap on a CPU: packed weights, layouts, fused norms."""
