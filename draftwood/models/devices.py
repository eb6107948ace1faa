"""The kinds of devices that Draftwood runs on. Importing this module does not import torch."""

from draftwood.errors import DraftwoodError

KINDS = ("cpu", "cuda")
"""Kinds of torch devices. Steps on others, such as ``mps`` and ``xpu``, have never been checked."""


def refuse_device(name: object) -> None:
    """Refuse the name of a device of another kind, before anything is loaded.

    Args:
        name: ``"auto"``, or a torch device or its name, such as ``"cuda:0"``.

    Raises:
        DraftwoodError: Draftwood does not run there.
    """
    if str(name).partition(":")[0] not in ("auto", *KINDS):
        raise DraftwoodError(
            f"device {name!r} cannot be used here: Draftwood runs on CPUs and CUDA GPUs only; give "
            "cpu, cuda or auto"
        )
