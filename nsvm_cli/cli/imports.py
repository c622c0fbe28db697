"""The import of torch, which takes most of the time to start."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch within the context, and modules that import it, without the garbage collector.

    The import creates more than 150,000 lasting objects, which the collector would visit again and again,
    in vain, for half as long as the import takes. So it is off meanwhile, and ignores them afterwards.
    """
    if "torch" in sys.modules:  # nothing to gain, and other objects of today may become garbage
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
