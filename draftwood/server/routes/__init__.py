"""One file for each kind of endpoint."""
