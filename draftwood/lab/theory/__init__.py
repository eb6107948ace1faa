"""Theorems and optima of the papers as NumPy functions: from acceptance rates to expected yields.

Nothing here imports a model, a policy or torch. Tests compare the functions with enumeration.
"""
