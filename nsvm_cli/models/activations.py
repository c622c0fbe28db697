"""The memory that a network takes for a sample: measured as it runs, and refused where it is too much."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nsvm_cli.memory import expect_room_for_sample

WHAT = "what the network computes"


class ActivationMeter(TorchFunctionMode):
    """Measures, within its context, what the functions of torch take and return, without parameters.

    ``bytes`` is the most that one call takes. A convolution that would take more for a sample than any model
    may is refused before it runs. The other functions that nsvm's networks call return no more than they get,
    or than they have parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        columns = _columns(*args, **kwargs) if function is torch.conv2d else 0
        returned = function(*args, **kwargs)
        values = [t for t in (*args, returned) if isinstance(t, Tensor) and not isinstance(t, nn.Parameter)]
        self.bytes = max(self.bytes, columns + sum(t.nbytes for t in values))
        return returned


def _columns(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, *_: Any, **__: Any
) -> int:
    """Return the bytes of the matrix of patches that a convolution in float64 builds; 0 in other types.

    Raises:
        InputError: a sample takes too much.
    """
    skipped = stride**2 if isinstance(stride, int) else math.prod(stride)
    pixels = math.ceil(math.prod(input.shape[-2:]) / skipped) * input.element_size()
    columns = weight[0].numel() * pixels if input.dtype == torch.float64 else 0
    expect_room_for_sample(columns + len(weight) * pixels, WHAT)
    return len(input) * columns
