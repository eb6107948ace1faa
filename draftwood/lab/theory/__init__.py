"""What the papers prove, as plain NumPy functions that tests can hold against exact enumeration.

Nothing here imports a model, a policy or torch: rates and shapes go in, expected yields come out.
"""
