"""The sections of docs/results.md, one subject a module; ``runs/results.py`` puts them together.

Each section is a function from all runs, by name, to blocks of Markdown, none if it has no run.
"""
