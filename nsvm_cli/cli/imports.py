"""The import of torch, which is most of what it takes to start."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch within the context, and modules that import it, without the garbage collector.

    The import makes more than 150,000 objects that last. The collector would go through them as they are
    made, whenever it is due and as the process ends, each time in vain; that takes as long as half of the
    import. So it is off meanwhile, and ignores them afterwards.
    """
    if "torch" in sys.modules:  # nothing to gain; and what else is there by now may be garbage some day
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
