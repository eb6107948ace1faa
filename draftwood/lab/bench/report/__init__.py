"""A benchmark's document as one HTML page that loads no other file and needs no network."""
