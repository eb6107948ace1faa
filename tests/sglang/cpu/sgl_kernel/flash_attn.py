"""Nothing of this is available on a CPU."""

import sgl_kernel

__getattr__ = sgl_kernel.__getattr__
