"""Tensor files: tensors and JSON in one safetensors file, with a checksum over every byte.

Files may come from untrusted sources. Tensors are loaded only after the header has been checked against
limits, and the file against its checksum.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nsvm_cli.config.registry import one_line, shown
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.storage.files import write_atomically

HEADER_BYTES = 2**22
FILE_BYTES = 2**31
TENSORS = 4096
DIMENSIONS = 8
"""Maximum numbers of bytes of a header, bytes of a file, tensors in a file, and dimensions of a tensor."""

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16"}
DTYPES |= {torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}

BLANK = "0" * 64

Spec = tuple[str, tuple[int, ...]]
"""The dtype of a tensor, in the notation of safetensors, and its shape."""


@dataclass(frozen=True)
class TensorFile:
    """A tensor file whose header has been checked, with its JSON content and the specs of its tensors."""

    path: Path
    content: dict[str, Any]
    specs: dict[str, Spec]
    digest: str

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, or raise an InputError if the checksum is wrong or a tensor is not finite."""
        try:
            if _checksum(self.path, self.digest) != self.digest:
                raise InputError(f"{self.path} is damaged: its checksum is wrong; use an intact copy")
            with safe_open(self.path, framework="pt") as opened:
                # copied, because sums may depend on the alignment in memory, which the file determines
                tensors = {name: opened.get_tensor(name).clone() for name in self.specs}
        except (SafetensorError, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {error}") from None
        if names := not_finite(tensors):
            raise unusable(self.path, f"tensor {shown(names[0])} contains NaN or infinity")
        return tensors


def write(
    path: Path,
    kind: str,
    content: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    named: bool = False,
    only_check: bool = False,
) -> None:
    """Write a tensor file or, if ``only_check``, only check that ``read`` would accept it.

    Raises:
        InputError: ``read`` would not accept the file.
        RunError: a tensor contains NaN or infinity.
    """
    # the checksum is computed with zeros in its place
    text = json.dumps({"sha256": BLANK, **content}, allow_nan=False)
    _check_limits(path, {kind: text}, tensors)
    if only_check:
        return
    # copied, because safetensors refuses tensors that share memory
    ready = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    if names := not_finite(ready):
        raise RunError(f"{path} cannot be written: tensor {shown(names[0])} contains NaN or infinity")
    data = bytearray(save(ready, {kind: text}))
    at = data.index(BLANK.encode())
    data[at : at + len(BLANK)] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, data, named)


def _check_limits(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    for name, t in tensors.items():
        if t.dtype not in DTYPES or t.ndim > DIMENSIONS:
            limits = f"{', '.join(DTYPES.values())} and at most {DIMENSIONS} dimensions"
            raise InputError(
                f"{path} cannot hold {shown(name)}: expected {limits}, got {t.dtype} and {t.ndim} dimensions"
            )
    size = sum(t.nbytes for t in tensors.values())
    specs = {n: {"dtype": "BOOL", "shape": t.shape, "data_offsets": [size, size]} for n, t in tensors.items()}
    # an upper bound, a few bytes above the true size
    header = len(json.dumps({"__metadata__": metadata, **specs}, separators=(",", ":")))
    if len(tensors) > TENSORS or header > HEADER_BYTES or header + size > FILE_BYTES:
        raise InputError(
            f"{path} cannot be written: it would have {len(tensors)} tensors, {header} bytes of header and "
            f"{header + size} bytes, expected at most {TENSORS}, {HEADER_BYTES} and {FILE_BYTES}"
        )


def read(path: Path, kind: str, noun: str = "tensor file") -> TensorFile:
    """Return a tensor file whose header has been checked, or raise an InputError. Tensors are not loaded."""
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a {noun}")
    try:
        with path.open("rb") as file:
            size, header = path.stat().st_size, int.from_bytes(file.read(8), "little")
        expect(size <= FILE_BYTES, f"it has {size} bytes, expected at most {FILE_BYTES}")
        expect(header <= HEADER_BYTES, f"its header has {header} bytes, expected at most {HEADER_BYTES}")
        with safe_open(path, framework="pt") as opened:  # also checks the header
            metadata, names = opened.metadata() or {}, opened.keys()
            slices = {name: opened.get_slice(name) for name in names}
            specs = {name: (entry.get_dtype(), tuple(entry.get_shape())) for name, entry in slices.items()}
        expect(len(specs) <= TENSORS, f"it has {len(specs)} tensors, expected at most {TENSORS}")
        for name, (dtype, shape) in specs.items():
            expect(dtype in DTYPES.values(), f"{shown(name)} has the unsupported dtype {dtype}")
            message = f"{shown(name)} has {len(shape)} dimensions, expected at most {DIMENSIONS}"
            expect(len(shape) <= DIMENSIONS, message)
    except (ValueError, OSError, SafetensorError) as error:
        raise unusable(path, error, f"cannot be read as a {noun} (a safetensors file)") from None
    if metadata.keys() != {kind}:
        reason = f"expected metadata {kind!r}, found {', '.join(map(repr, metadata)) or 'none'}"
        raise unusable(path, reason, "is another kind of file, or was written by another version of nsvm")
    try:
        content = json.loads(metadata[kind])
        expect(isinstance(content, dict), "its metadata are not a JSON object")
        digest = content.pop("sha256", None)
        expect(isinstance(digest, str) and len(digest) == len(BLANK), "it has no checksum")
    except (ValueError, RecursionError) as error:
        raise unusable(path, error) from None
    return TensorFile(path, content, specs, digest)


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that hold NaN or infinity."""
    return [name for name, tensor in tensors.items() if not tensor.isfinite().all()]


def unusable(path: Path, reason: object, what: str = "cannot be used") -> InputError:
    """Return an InputError about a file, with the reason shortened to 300 characters."""
    reason = one_line(reason) if isinstance(reason, ValidationError) else reason
    return InputError(f"{path} {what}: {textwrap.shorten(str(reason), 300, placeholder=' ...')}")


def _checksum(path: Path, digest: str) -> str:
    """Return the SHA-256 of a file with zeros in place of its digest, or "none" if the header lacks it."""
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(int.from_bytes(length, "little"))
        if header.count(digest.encode()) != 1:
            return "none"
        checksum = hashlib.sha256(length + header.replace(digest.encode(), BLANK.encode()))
        return hashlib.file_digest(file, lambda: checksum).hexdigest()


def expect(condition: bool, otherwise: str) -> None:
    """Raise a ValueError unless a condition holds."""
    if not condition:
        raise ValueError(otherwise)
