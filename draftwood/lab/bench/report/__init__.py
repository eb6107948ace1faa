"""A benchmark's document as one HTML page that needs nothing else: no network, no other file."""
