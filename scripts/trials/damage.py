"""Files that are cut short or have a bit turned, and disks that are full."""

from __future__ import annotations

import json
import random
import subprocess
from argparse import Namespace
from collections import Counter
from pathlib import Path

from nsvm_cli.artifacts.model_file import MODEL
from nsvm_cli.errors import InputError
from nsvm_cli.runs.checkpoint import KIND, load_checkpoint
from nsvm_cli.storage.run_directory import checkpoints_in
from trials.files import Reader, make
from trials.runs import NSVM, start

FLIPS, CUTS = 10_000, 1_000


def damage(folder: Path, arguments: Namespace) -> list[str]:
    """Check that every file that is cut or flipped is refused, in one line."""
    lines = []
    file = folder / "file.safetensors"
    for kind, whole in zip((MODEL, KIND), make(folder, "alg2"), strict=True):
        data = whole.read_bytes()
        read, rng = Reader(kind, "alg2"), random.Random(0)
        header = 8 + int.from_bytes(data[:8], "little")
        file.write_bytes(data)
        if read(file) != "taken":
            raise SystemExit(f"{whole} is not taken as it is")
        cuts = [*range(header + 1), *(rng.randrange(header, len(data)) for _ in range(CUTS))]
        flips = [rng.randrange(8 * len(data)) for _ in range(FLIPS)]
        said: list[str] = []
        for cut in cuts:
            file.write_bytes(data[:cut])
            said.append(read(file))
        for place in flips:
            flipped = bytearray(data)
            flipped[place // 8] ^= 1 << place % 8
            file.write_bytes(flipped)
            said.append(read(file))
        if wrong := [line for line in said if line == "taken" or "\n" in line]:
            raise SystemExit(f"{kind}: {len(wrong)} were taken, or not refused in one line")
        lines.append(
            f"{kind} ({len(data)} bytes, header {header}): cut at every byte of the header and at {CUTS} "
            f"places behind it, and {FLIPS} single bits flipped: all {len(said)} refused in one line"
        )
        if kind == MODEL:
            lines.append(_by_command(data, header, file, rng))
    return lines


def _by_command(data: bytes, header: int, file: Path, rng: random.Random) -> str:
    """Hand some of them to the command itself."""
    for n in range(20):
        damaged = bytearray(data)
        place = rng.randrange(8 * len(data)) if n % 2 else rng.randrange(8 * header)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        done = subprocess.run([*NSVM, "evaluate", str(file)], capture_output=True, text=True, timeout=120)
        if done.returncode != 2 or done.stderr.count("\n") != 1 or done.stdout:
            raise SystemExit(f"bit {place}: {done.returncode}, {done.stdout}{done.stderr}")
    return "20 of them by nsvm evaluate: exit code 2, one line, no figures"


def disk(folder: Path, arguments: Namespace) -> list[str]:
    """Run on a tmpfs that has room for ever more; whatever is missing, the run resumes once there is room."""
    small = folder / "small"
    small.mkdir()
    words = ["algorithm=alg2", "algorithm.steps=3000", "seed=3", "log_every=10", "checkpoint.every=300"]
    words += [
        "dataset.samples=400",
        "dataset.validation=20",
        "validation.every=500",
        "hydra.run.dir=small/run",
    ]
    ends: Counter[str] = Counter()
    kept = resumed = 0
    for kilobytes in range(4, 4000, 4):
        options = f"size={kilobytes}k,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(small)], check=True)
        try:
            run = start(words, folder)
            _, errors = run.communicate(timeout=300)
            path = small / "run"
            if run.returncode == 0:
                return [
                    f"{ends.total()} sizes of a tmpfs, from 4 KiB in steps of 4, until the run fitted into "
                    f"{kilobytes} KiB: exit code 1 and one line each time, no traceback",
                    *(f"- {count} times at {what}" for what, count in ends.most_common()),
                    f"{kept} times there was a checkpoint already: it loads; {resumed} of these runs were "
                    "resumed after the disk had been made larger",
                ]
            last = errors.splitlines()[-1]
            if run.returncode != 1 or "Traceback" in errors or "No space left" not in last:
                raise SystemExit(f"{kilobytes} KiB: {run.returncode}, {errors}")
            if (path / "result.json").exists():
                json.loads((path / "result.json").read_text())
            ends[_what(last)] += 1
            if checkpoints_in(path):
                load_checkpoint(checkpoints_in(path)[0])
                kept += 1
                if resumed < 5:
                    subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
                    again = start(["resume=small/run"], folder)
                    _, errors = again.communicate(timeout=300)
                    if again.returncode != 0 or "resuming after step" not in errors:
                        raise SystemExit(f"{kilobytes} KiB: could not be resumed: {errors}")
                    resumed += 1
        except InputError as error:
            raise SystemExit(f"{kilobytes} KiB: {error}") from None
        finally:
            subprocess.run(["umount", str(small)], check=True)
    raise SystemExit("the run never fitted")


def _what(line: str) -> str:
    """Return which file could not be written."""
    path = line.removeprefix("nsvm: ").partition(": No space left")[0]
    return "/".join(Path(path).parts[-2:])
