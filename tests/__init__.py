"""Tests of the package.

Kernels for a GPU run in Triton's interpreter, which must be known before Triton is imported.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
