"""What an engine learns of its own steps, for policies that size their trees by it."""
