"""Memory that is free already, given back: the allocator of Linux keeps what its threads have let go of."""

from __future__ import annotations

import ctypes
import gc
import sys


def release() -> None:
    """Give free memory back to the system, where it can be asked to."""
    gc.collect()
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library, such as musl
        return
