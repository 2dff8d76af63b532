"""`make golden`: writes tests/data/golden anew with real brokers. What is there is only to be read; see its README.

python tests/interop/make_golden.py [version ...]
"""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracle import golden

from interop import jars, scenario
from interop.rocketmq import NEWEST, VERSIONS, Sizes
from interop.scenario import Written

# What git can hold: small files, and no more than it takes to have several of each.
_SIZES = Sizes(segment=64 * 1024, queue_file=20 * 20, index_slots=100, index_items=200)
_SAMPLE_SIZES = Sizes(segment=1088 * 1024, queue_file=20 * 20, index_slots=100, index_items=200)
_SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"
_NOT_PACKED = ("rocksdbstore", "kvStore")  # no messages, but the paths of this machine
# A plain directory is as large as its files say, holes and all; and a wheel without its log is worse than none.
_NOT_IN_SAMPLE = (*_NOT_PACKED, "timerwheel", "timerlog", "timercheck*", "*.bak")


def main(versions: list[str]) -> None:
    for version in versions:
        richest = version == NEWEST
        with tempfile.TemporaryDirectory() as temporary:
            written = scenario.write(
                version,
                Path(temporary),
                _SAMPLE_SIZES if richest else _SIZES,
                seed=20_000,
                plain=60,
                largest=1 << 20 if richest else 0,
            )
            _pack(written, golden.DIRECTORY / version)
            if richest:
                readme = (_SAMPLE / "README.md").read_text()
                shutil.rmtree(_SAMPLE)
                shutil.copytree(written.root, _SAMPLE, ignore=shutil.ignore_patterns(*_NOT_IN_SAMPLE))
                (_SAMPLE / "README.md").write_text(readme)
        print(f"{version}: {len(written.truth.units)} messages")


def _pack(written: Written, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(directory / "store.tar.xz", "w:xz", preset=9) as packed:
        packed.add(written.root, arcname=".", filter=_packed)
    with lzma.open(directory / "dump.jsonl.xz", "wb", preset=9) as out:
        out.write(written.dump.read_bytes())


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in _NOT_PACKED:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or list(VERSIONS))
    except jars.Unavailable as why:
        sys.exit(f"no real RocketMQ: {why}")
