"""Tensor files: tensors and JSON in one safetensors file, with a checksum over every byte.

A file may come from an untrusted source. Reading first checks its header against fixed limits, then the whole
file against its checksum, and only then loads tensors. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import textwrap
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn

import pydantic
import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nsvm_cli.config.registry import STRICT, entry_of, one_line
from nsvm_cli.errors import InputError, RunError
from nsvm_cli.storage.files import write_atomically

HEADER_BYTES = 2**22
FILE_BYTES = 2**31
TENSORS = 4096
DIMENSIONS = 8
DEPTH = 16
DIGITS = 20
"""Limits of a file: bytes in its header and in total, number of tensors and of their dimensions, and in its
JSON the nesting depth and the digits of an integer."""

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16"}
DTYPES |= {torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
SIZES = {"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}

BLANK = "0" * 64
ENTRY = ("dtype", "shape", "data_offsets")

Length = Annotated[int, Field(strict=True, ge=0, le=FILE_BYTES)]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Entry:
    """What a header says of a tensor."""

    dtype: Annotated[str, entry_of(SIZES)]
    shape: Annotated[tuple[Length, ...], Field(max_length=DIMENSIONS)]
    data_offsets: tuple[Length, Length]

    def __post_init__(self) -> None:
        begin, end = self.data_offsets
        _expect(end - begin == self.bytes, "its size does not match its shape")

    @property
    def bytes(self) -> int:
        """The bytes of the tensor."""
        return math.prod(self.shape) * SIZES[self.dtype]


ENTRIES = TypeAdapter(dict[str, Entry])

Spec = tuple[str, tuple[int, ...]]
"""The dtype, as safetensors names it, and the shape of a tensor."""


def spec(tensor: Tensor) -> Spec:
    """Return the dtype and shape of a tensor as a file describes them.

    Raises:
        KeyError: tensor files do not support the dtype.
    """
    return DTYPES[tensor.dtype], tuple(tensor.shape)


@dataclass(frozen=True)
class TensorFile:
    """A file whose header has been checked: its JSON content and the specs of its tensors."""

    path: Path
    content: dict[str, Any]
    specs: dict[str, Spec]
    digest: str

    def tensors(self) -> dict[str, Tensor]:
        """Verify the checksum and return all tensors.

        Raises:
            InputError: the file is damaged or cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                if _checksum(file, self.digest) != self.digest:
                    raise InputError(f"{self.path} is damaged: its checksum is wrong; use an intact copy")
                # by its descriptor, because safetensors takes no path that is not UTF-8
                with safe_open(f"/dev/fd/{file.fileno()}", framework="pt") as opened:
                    # copied, because sums may depend on the alignment in memory, which the file determines
                    return {name: opened.get_tensor(name).clone() for name in self.specs}
        except (SafetensorError, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {error}") from None


def write(
    path: Path, kind: str, content: Mapping[str, Any], tensors: Mapping[str, Tensor], named: bool = False
) -> None:
    """Write a file of this kind; see ``write_atomically``.

    Raises:
        RunError: ``read`` would refuse the file.
    """
    try:
        text = check(kind, content, tensors)
    except ValueError as error:
        raise RunError(f"{path} cannot be written: {error}") from None
    # copied, because safetensors refuses tensors that share memory, as those of an expansion may
    ready = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    data = bytearray(save(ready, {kind: text}))
    at = data.index(BLANK.encode())
    data[at : at + len(BLANK)] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, data, named)


def check(kind: str, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the JSON of a file, if it can hold this content and tensors of these shapes; nothing is copied.

    Raises:
        ValueError: ``read`` would refuse the file.
    """
    # the checksum is computed with zeros in its place
    text = json.dumps({"sha256": BLANK, **content}, allow_nan=False)
    json_within_bounds(text)
    for name, tensor in tensors.items():
        _expect(tensor.dtype in DTYPES, f"{name} is of type {tensor.dtype}")
    _expect(len(tensors) <= TENSORS, f"it would have {len(tensors)} tensors, expected at most {TENSORS}")
    size = sum(tensor.nbytes for tensor in tensors.values())
    # as safetensors writes it, or with a few more spaces and digits
    entries = {name: dict(zip(ENTRY, (*spec(t), [size, size]), strict=True)) for name, t in tensors.items()}
    header = len(json.dumps({"__metadata__": {kind: text}, **entries}))
    _expect(header <= HEADER_BYTES, f"its header would have {header} bytes, expected at most {HEADER_BYTES}")
    size += header
    _expect(size <= FILE_BYTES, f"it would have {size} bytes, expected at most {FILE_BYTES}")
    return text


def read(path: Path, kind: str, noun: str = "tensor file") -> TensorFile:
    """Read and check the header of a file of this kind, such as ``nsvm-model-2``, and nothing else.

    Raises:
        InputError: there is no such file, or it is of another kind, or it exceeds a limit.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: expected a {noun}")
    try:
        with path.open("rb") as file:
            text = _header(file, size := path.stat().st_size)
        header = json_within_bounds(text.decode())
        _expect(isinstance(header, dict), "its header is not a JSON object")
        metadata = header.pop("__metadata__", None)
        specs = _specs(header, size - 8 - len(text))
    except (ValueError, OSError) as error:
        raise _refusal(path, f"cannot be read as a {noun} (a safetensors file)", error) from None
    if not isinstance(metadata, dict) or metadata.keys() != {kind}:
        raise _refusal(path, "is of another kind", _other_kind(kind, metadata))
    try:
        _expect(isinstance(metadata[kind], str), "its metadata are not text")
        content = json_within_bounds(metadata[kind])
        _expect(isinstance(content, dict), "its metadata are not a JSON object")
        digest = content.pop("sha256", None)
        _expect(isinstance(digest, str) and len(digest) == len(BLANK), "it has no checksum")
    except ValueError as error:
        raise unusable(path, error) from None
    return TensorFile(path, content, specs, digest)


def _other_kind(kind: str, metadata: object) -> str:
    found = [*metadata] if isinstance(metadata, dict) else []
    reason = f"expected metadata {kind!r}, found {', '.join(map(repr, found)) or 'none'}"
    stem = kind.rpartition("-")[0]
    if [name.rpartition("-")[0] for name in found] == [stem]:
        return f"{reason}, which another version of nsvm writes: train again"
    return reason


def unusable(path: Path, reason: object) -> InputError:
    """Return the error for a file that cannot be used; a long reason is shortened."""
    return _refusal(path, "cannot be used", reason)


def _refusal(path: Path, what: str, reason: object) -> InputError:
    reason = one_line(reason) if isinstance(reason, ValidationError) else reason
    return InputError(f"{path} {what}: {textwrap.shorten(str(reason), 300, placeholder=' ...')}")


def json_within_bounds(text: str) -> Any:
    """Parse strict JSON of bounded depth, without NaN, duplicate names or control characters.

    Raises:
        ValueError: the text is anything else.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_bounded_int
        )
    except RecursionError:
        raise ValueError(f"its JSON is nested deeper than {DEPTH} levels") from None
    level = [value]
    for _ in range(DEPTH):
        inner: list[Any] = []
        characters: set[str] = set()
        for each in level:
            if isinstance(each, dict):
                inner += [*each, *each.values()]
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str):
                characters.update(each)
        _expect(not any(map(_is_control, characters)), "its JSON holds control characters")
        level = inner
    _expect(not level, f"its JSON is nested deeper than {DEPTH} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    _expect(len(members) == len(pairs), "its JSON has duplicate names")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"its JSON holds {name}")


def _bounded_int(digits: str) -> int:
    _expect(len(digits) <= DIGITS, f"its JSON holds an integer of more than {DIGITS} digits")
    return int(digits)


def _is_control(character: str) -> bool:
    # surrogates cannot be printed either; a tab may be the separator of a table
    return unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n"


def _header(file: BinaryIO, size: int) -> bytes:
    length = int.from_bytes(file.read(8), "little")
    _expect(file.read(1) in (b"{", b""), "it does not begin like one")
    file.seek(8)
    _expect(size <= FILE_BYTES, f"it has {size} bytes, expected at most {FILE_BYTES}")
    _expect(length <= HEADER_BYTES, f"its header has {length} bytes, expected at most {HEADER_BYTES}")
    header = file.read(length)
    _expect(size >= 8 and len(header) == length, "it ends within its header")
    return header


def _specs(header: Mapping[str, Any], room: int) -> dict[str, Spec]:
    """Return the specs of the tensors in a header, which must fill the rest of the file exactly."""
    _expect(len(header) <= TENSORS, f"it has {len(header)} tensors, expected at most {TENSORS}")
    entries = ENTRIES.validate_python(header)
    total = sum(entry.bytes for entry in entries.values())
    _expect(total == room, f"its tensors take {total} bytes, expected {room}")
    return {name: (entry.dtype, entry.shape) for name, entry in entries.items()}


def _checksum(file: BinaryIO, digest: str) -> str:
    """Return the checksum of the file with zeros in place of the digest, which its header holds once."""
    length = file.read(8)
    header = file.read(int.from_bytes(length, "little"))
    if header.count(digest.encode()) != 1:
        return "none"
    checksum = hashlib.sha256(length + header.replace(digest.encode(), BLANK.encode()))
    while chunk := file.read(2**20):
        checksum.update(chunk)
    return checksum.hexdigest()


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
