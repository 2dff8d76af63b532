"""The wheel has what it needs and no more, loads with an old C library, and Spark finds the data source in it by
itself."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.distribution import PACKAGES, run

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ["_common", "_config", "_io", "_read", "_rocksdb", "_write"]  # its compiled modules


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["package.whl", "package.zip", "package.egg"])
def test_an_archive_on_the_path(tmp_path: Path, name: str) -> None:
    """As of `spark-submit --py-files`, which puts it before what is installed."""
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for package in PACKAGES:
            for path in (ROOT / package).rglob("*"):
                if path.suffix in (".py", ".so"):
                    archive.write(path, path.relative_to(ROOT))
    command = [sys.executable, "-c", "import rmqstore_spark; rmqstore_spark.Store('.').messages()"]
    env = os.environ | {"PYTHONPATH": str(tmp_path / name)}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / name}: Python cannot load a compiled module from an archive")
    assert "--archives" in last
    assert "build it" not in last


def test_sdist_has_sources_only(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]
    assert not [name for name in names if {"tests", "sample_store", "benchmarks"} & set(Path(name).parts)]
    for name in ("_common.pyx", "_common.pxd", "unit.h", "README.md"):
        assert any(found.endswith(f"/native_io/{name}") for found in names), name


def test_kernel_loads_with_an_old_c_library() -> None:
    """What Makefile's PLATFORM and docs/cluster.md promise; a newer symbol comes in with any new call."""
    promised = re.findall(r"manylinux_(\d+)_(\d+)", (ROOT / "Makefile").read_text())[0]
    for name in KERNEL:
        versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", (ROOT / "native_io" / f"{name}.abi3.so").read_bytes())
        assert versions
        assert max((int(a), int(b)) for a, b in versions) <= tuple(map(int, promised)), name


def test_demo_installs_what_it_shows() -> None:
    """It ends with screens of `rmqstore`, in an environment that has nothing but what it asks for."""
    assert "rmqstore_spark.cli" in (ROOT / "examples" / "demo.py").read_text()
    asked = re.findall(r"^DEMO_EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert "cli" in asked[0].split(",")


@pytest.mark.slow
@pytest.mark.long  # the kernel is compiled
def test_wheel_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert "-cp311-abi3-" in wheel.name  # one for all Pythons
    packaged = {name for name in names if ".dist-info/" not in name}

    modules = {path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert packaged == modules | {
        "pyspark_rmqstore.py",
        *(f"native_io/{part}{end}" for part in KERNEL for end in (".abi3.so", ".pyi")),
        "native_io/py.typed",
        "rmqstore_spark/py.typed",
    }
    assert {name.rpartition("/")[2] for name in names if ".dist-info/" in name} >= {"LICENSE", "NOTICE"}
    assert "Requires-Python: >=3.11" in metadata
    for requirement in ("pyspark>=4.1", "pyarrow>=18", "numpy"):
        assert f"Requires-Dist: {requirement}\n" in metadata


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_installed_wheel_needs_no_register(wheel: Path, small_store: Path, tmp_path: Path) -> None:
    site, cwd = tmp_path / "site", tmp_path / "elsewhere"
    cwd.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=cwd)
    program = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print("COUNT", spark.read.format("rmqstore").load(sys.argv[1]).count())
spark.stop()

import native_io._common, rmqstore_spark
print("FROM", rmqstore_spark.__file__, native_io._common.__file__)
"""
    # PYTHONPATH goes first, so the wheel is what is imported even where the source tree is installed too.
    told = run(sys.executable, "-c", program, small_store, cwd=cwd, PYTHONPATH=str(site))
    assert "COUNT 60\n" in told
    origins = told.partition("FROM ")[2].split()
    assert [Path(origin).is_relative_to(site) for origin in origins] == [True, True]
