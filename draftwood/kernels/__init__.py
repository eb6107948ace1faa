"""Kernels: in C++ for few rows on a CPU, in Triton for a GPU.

Every one has a twin in PyTorch, which computes the same up to rounding where there is no compiler
or no Triton.
"""
