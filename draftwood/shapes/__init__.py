"""What several policies know of the shapes of their trees: rules and files, no queries."""
