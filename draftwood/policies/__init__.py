"""Policies arrange candidates into a tree: one file per policy, named by the file."""
