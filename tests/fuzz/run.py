"""Builds the harnesses and runs them, on all cores:

    PYTHONPATH=tests python -m fuzz.run --seconds 60

Needs clang with its libFuzzer (apt: clang libclang-rt-*-dev) and zlib's headers. Without them it says so, and does
nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.seeds import write_seeds

_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parents[1]
_KERNEL = _REPOSITORY / "native_io"
_KEPT = _REPOSITORY / "tests/data/fuzz"
_FAILED = _HERE / "failed"
NAMES = sorted(path.stem for path in _HERE.glob("*.c"))
# What takes longest to look through gets the most of the time.
_SHARES = {"log": 3.0, "sums": 0.5, "offsets": 0.5}

# Of addresses and undefined behaviour; or of memory that is read before it is written. The latter knows nothing of
# machine code that others compiled, or that only some machines have.
_SANITIZERS = ("-fsanitize=fuzzer,address,undefined",)
_OF_MEMORY = ("-fsanitize=fuzzer,memory", "-fsanitize-memory-track-origins", "-DRMQ_PORTABLE")
_NEEDS_LIBRARIES = {"bodies"}
_FLAGS = (
    "-fno-sanitize-recover=all", "-gline-tables-only", "-O1",
    "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
)  # fmt: skip
# Memory that is freed is kept from being used again, but not 256 MiB of it; of who took it no more is noted than two
# calls; and it is not filled, as MemorySanitizer sees who reads it before it was written. Otherwise half of the time is
# spent on these.
_ADDRESSES = "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=2:max_malloc_fill_size=0"
_ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": _ADDRESSES, "UBSAN_OPTIONS": "print_stacktrace=1"}


_SMALLEST = b"""#include <zlib.h>
int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return data && size && crc32(0, 0, 0); }
"""


class Failed(Exception):
    """A harness has found something."""


def _compiler(sanitizers: tuple[str, ...]) -> str | None:
    """A clang that has libFuzzer, by trying it."""
    for name in (os.environ.get("FUZZ_CC", "clang"), *(f"clang-{version}" for version in range(22, 13, -1))):
        if shutil.which(name) is None:
            continue
        command = [name, "-x", "c", "-", *sanitizers, "-o", os.devnull, "-lz"]
        if subprocess.run(command, input=_SMALLEST, capture_output=True).returncode == 0:
            return name
    return None


def _build(compiler: str, sanitizers: tuple[str, ...], name: str, directory: Path) -> None:
    """Compile a harness, unless it is newer than all that it may be made of."""
    program = directory / name
    sources = [*_HERE.glob("*.[ch]"), *_KERNEL.glob("*.h")]
    if program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return
    made = [
        compiler,
        *sanitizers,
        *_FLAGS,
        f"-I{_KERNEL}",
        f"-I{_HERE}",
        str(_HERE / f"{name}.c"),
        "-o",
        str(program),
        "-lz",
        "-ldl",
    ]
    subprocess.run(made, check=True)


def _fill_corpora(corpora: Path) -> None:
    write_seeds(corpora)
    for name in NAMES:
        (corpora / name).mkdir(parents=True, exist_ok=True)
        kept = _KEPT / f"{name}.zip"
        if kept.exists():
            with zipfile.ZipFile(kept) as archive:
                archive.extractall(corpora / name)


def _call(program: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program, env=_ENVIRONMENT, capture_output=True, text=True, errors="replace")


def _run(name: str, directory: Path, seconds: float, seed: int, longest: int) -> str:
    """How many inputs a harness took in so many seconds, and how many places of the code they came to.

    Raises:
        Failed: says what it found.
    """
    failed = sorted(map(str, _FAILED.glob(f"{name}-*")))
    program = [str(directory / name), f"-max_len={longest}", "-timeout=30", "-rss_limit_mb=2048"]
    again = _call([*program, *failed]) if failed else None
    if again is not None and again.returncode != 0:
        raise Failed(f"{name}: what failed once fails again\n{again.stderr[-4000:]}")
    _FAILED.mkdir(exist_ok=True)
    options = ["-entropic=0", f"-seed={seed}", f"-max_total_time={max(1, round(seconds))}"]
    options.append(f"-artifact_prefix={_FAILED / name}-")
    run = _call([*program, *options, str(directory / "corpora" / name)])
    if run.returncode != 0:
        raise Failed(f"{name}:\n{run.stderr[-6000:]}\nonce more: {directory / name} tests/fuzz/failed/{name}-...")
    counts = re.findall(r"^#(\d+)\s+DONE\s+cov: (\d+)", run.stderr, re.MULTILINE)
    return f"{name}: {int(counts[-1][0]):,} inputs, {counts[-1][1]} places" if counts else f"{name}: no input in time"


def _keep(name: str, directory: Path, most: int) -> None:
    """Keep the fewest inputs that come to all the places that the corpus comes to, the shortest first."""
    least = directory / "least" / name
    shutil.rmtree(least, ignore_errors=True)
    least.mkdir(parents=True)
    merge = [str(directory / name), "-merge=1", "-max_len=2000", str(least), str(directory / "corpora" / name)]
    subprocess.run(merge, env=_ENVIRONMENT, check=True, capture_output=True)
    _KEPT.mkdir(exist_ok=True)
    with zipfile.ZipFile(_KEPT / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(least.iterdir(), key=lambda path: (path.stat().st_size, path.name))[:most]:
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all together")
    parser.add_argument("--only", default=",".join(NAMES), help="commas between them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31), help="of libFuzzer's own draws")
    parser.add_argument("--longest", type=int, default=2000, help="bytes of an input; shorter ones are quicker")
    parser.add_argument("--keep", type=int, default=0, help="so many inputs of each in tests/data/fuzz, for later runs")
    parser.add_argument(
        "--memory", action="store_true", help="find what is read before it is written (MemorySanitizer)"
    )
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    names = arguments.only.split(",")
    sanitizers = _OF_MEMORY if arguments.memory else _SANITIZERS
    if arguments.memory:
        names = [name for name in names if name not in _NEEDS_LIBRARIES]
    compiler = _compiler(sanitizers)
    if compiler is None:
        print("fuzz: skipped: no clang with libFuzzer and zlib.h here (apt: clang libclang-rt-*-dev zlib1g-dev)")
        return 0
    print(f"fuzz: seed {arguments.seed}", flush=True)
    directory = _REPOSITORY / ("build/fuzz-memory" if arguments.memory else "build/fuzz")
    directory.mkdir(parents=True, exist_ok=True)
    _fill_corpora(directory / "corpora")
    second = arguments.jobs * arguments.seconds / sum(_SHARES.get(name, 1.0) for name in names)
    status = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda name: _build(compiler, sanitizers, name, directory), names))
        runs = [
            (
                name,
                pool.submit(_run, name, directory, second * _SHARES.get(name, 1.0), arguments.seed, arguments.longest),
            )
            for name in names
        ]
        for name, run in runs:
            try:
                print(run.result(), flush=True)
            except Failed as why:
                print(why, file=sys.stderr, flush=True)
                status = 1
            else:
                if arguments.keep > 0:
                    _keep(name, directory, arguments.keep)
    return status


if __name__ == "__main__":
    sys.exit(main())
