"""The Penn Machine Learning Benchmarks: tables of classes and of real targets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from nsvm_cli.config.registry import STRICT
from nsvm_cli.datasets.base import Source, Table
from nsvm_cli.datasets.csv import Names
from nsvm_cli.datasets.download import TIMEOUT, cache_folder, fetch, reason
from nsvm_cli.datasets.tables import CSVFile, to_table
from nsvm_cli.errors import InputError, did_you_mean
from nsvm_cli.storage.files import open_regular, read_regular, write_atomically

REVISION = "7c1f4bdc00136dc2e55c87fa6b8ba6e8af6d1a68"
"""The commit of PMLB whose tables are downloaded, of February 2025."""

REPOSITORY = f"https://raw.githubusercontent.com/EpistasisLab/pmlb/{REVISION}/"
CONTENT = f"https://media.githubusercontent.com/media/EpistasisLab/pmlb/{REVISION}/"
"""The addresses of the files of the repository, and of the content of those in Git LFS."""

SUMMARY = "pmlb/all_summary_stats.tsv"
"""The file of the repository that lists its tables; columns ``dataset`` and ``task`` among others."""

SUMMARY_BYTES = 2**20

LABELS = ("target", "class")
"""The names of the column of labels: the current one, and that of the first releases."""

POINTER = b"version https://git-lfs.github.com/spec/v1\n"
"""The beginning of a pointer to a file in Git LFS, which states its SHA-256 checksum."""

TableName = Annotated[str, Field(pattern=r"^[_A-Za-z0-9][_A-Za-z0-9.+-]*$", max_length=128)]
"""The name of a table; as a part of the names of its file and folder, it has these characters only."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PMLB(Source):
    """A table of the Penn Machine Learning Benchmarks (Olson et al., 2017; Romano et al., 2022).

    Tables are read from ``root``: a clone of PMLB's repository, with ``datasets/TABLE/TABLE.tsv.gz``; a cache
    of the package pmlb, with ``TABLE/TABLE.tsv.gz``; or, as in its first releases,
    ``classification/TABLE.csv.gz`` and ``regression/TABLE.tsv.gz``. Without ``root`` they are read from the
    user's cache folder, and downloaded first if they are missing. A download is compared with the checksum
    that one fixed commit of the repository records.

    The column ``target`` or, in the first releases, ``class`` is the label; the columns in ``drop`` are no
    features.
    """

    table: TableName
    root: str | None = None
    drop: Names = ()

    def load(self, rng: np.random.Generator) -> Table:
        file, kind = self._find()
        _expect_content(file)
        content = CSVFile(str(file), "dataset.table", "\t")
        rows = content.read(labels=LABELS)
        label = next((name for name in LABELS if name in rows), None)
        if label is None:
            raise InputError(
                f"{file}: expected a column target or class, got {', '.join(map(str, rows))[:200]}"
            )
        return replace(to_table([content], [rows], label, self.drop), kind=kind)

    def _find(self) -> tuple[Path, str | None]:
        """Return the file of the table, after downloading it if necessary, and the kind of its task."""
        try:
            root = cache_folder() / "PMLB" if self.root is None else Path(self.root).expanduser()
            files = tables_in(root)
            if self.table not in files and self.root is None:
                self._download(root)
                files = tables_in(root)
            kinds = listed_kinds(root)
        except InputError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            where = (
                f"dataset.table: {self.table} cannot be downloaded"
                if self.root is None
                else f"dataset.root={self.root} cannot be read"
            )
            raise InputError(f"{where} ({reason(error)}): {self.ways()}") from None
        if self.table not in files:
            near = _did_you_mean(self.table, files) or self.ways()
            raise InputError(f"dataset.table: {root} has no table {self.table!r}; {near}")
        file = files[self.table]
        folder = file.parent.name
        return file, folder if folder in KINDS else kinds.get(self.table)

    def ways(self) -> str:
        """Return advice on how to obtain a table, for the end of a message."""
        omit = "" if self.root is None else ", or omit dataset.root to download them"
        return (
            "name a folder that holds its tables with dataset.root=FOLDER, such as a clone of "
            f"https://github.com/EpistasisLab/pmlb{omit}"
        )

    def _download(self, root: Path) -> None:
        """Download the list of tables, which is short, and the table."""
        if not (root / SUMMARY).is_file():
            summary = fetch_text(REPOSITORY + SUMMARY, SUMMARY_BYTES)
            (root / SUMMARY).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(root / SUMMARY, summary.encode())
        if self.table not in (kinds := listed_kinds(root)):
            near = _did_you_mean(self.table, kinds) or f"it has {len(kinds)} others"
            raise InputError(f"dataset.table: PMLB has no table {self.table!r}; {near}")
        name, folder = f"{self.table}.tsv.gz", f"datasets/{self.table}/"
        checksum = checksum_of(fetch_text(REPOSITORY + folder + name, limit=1024))
        fetch(CONTENT + folder + name, checksum, root / folder)


def fetch_text(address: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes from an address.

    Raises:
        OSError: it cannot be downloaded.
        ValueError: it is longer, or is not UTF-8.
    """
    import requests  # slow to import, and most runs download nothing

    content = bytearray()
    with requests.get(address, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        for chunk in response.iter_content(2**16):
            content += chunk
            if len(content) > limit:
                raise ValueError(f"{address}: expected at most {limit} bytes")
    return content.decode()


KINDS = ("classification", "regression")


def tables_in(root: Path) -> dict[str, Path]:
    """Return the files of the tables in a folder by their names."""
    files = {
        file.name[: -len(".tsv.gz")]: file for kind in KINDS for file in root.glob(f"{kind}/*.[ct]sv.gz")
    }
    for file in [*root.glob("*/*.tsv.gz"), *root.glob("datasets/*/*.tsv.gz")]:
        if file.name == f"{file.parent.name}.tsv.gz":
            files.setdefault(file.parent.name, file)
    return {name: file for name, file in files.items() if file.is_file()}


def listed_kinds(root: Path) -> dict[str, str]:
    """Return the kind of task of each table that the summary in a copy of the repository lists.

    Raises:
        OSError, ValueError: there is a summary, but it cannot be read.
    """
    if not (root / SUMMARY).is_file():
        return {}
    header, *lines = read_regular(root / SUMMARY, SUMMARY_BYTES).decode().splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=False)) for line in lines]
    return {row["dataset"]: row["task"] for row in rows if row.get("task") in KINDS}


def checksum_of(pointer: str) -> str:
    """Return the SHA-256 checksum that a pointer of Git LFS states.

    Raises:
        ValueError: the text is not such a pointer.
    """
    stated = re.search(r"^oid sha256:([0-9a-f]{64})$", pointer, re.MULTILINE)
    if not pointer.startswith(POINTER.decode()) or stated is None:
        raise ValueError("its repository states no checksum")
    return stated[1]


def _expect_content(file: Path) -> None:
    """Raise an InputError if a clone of the repository holds a pointer in place of the table."""
    start = b""
    with contextlib.suppress(OSError, ValueError), open_regular(file) as stream:  # reading will report these
        start = stream.read(len(POINTER))
    if start == POINTER:
        raise InputError(f"{file} is a pointer of Git LFS, not the table: run git lfs pull in its folder")


def _did_you_mean(table: str, names: Iterable[str]) -> str:
    """Return the names that may have been meant, or all if they are few; "" if there are none."""
    names = [*names]
    near = names if len(names) <= 30 else get_close_matches(table, names, n=5)
    return did_you_mean(table, near) if near else ""
