"""The decode loop: draft trees in lockstep, score them in one forward, verify, commit."""
