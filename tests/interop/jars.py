"""Java programs from Maven Central, and classes of ours beside them.

Needs Maven and a JDK the first time; what they made is kept (see `CACHE`) and then only Java runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqstore-spark" / "interop"
_MAVEN_SECONDS = 600


class Unavailable(Exception):
    """Why something cannot be run: no Maven, no JDK, no answer from the repository."""


def java(program: str) -> str:
    """The path of a JDK's program.

    Raises:
        Unavailable: there is no JDK.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        return str(Path(home) / "bin" / program)
    compiler = shutil.which("javac")
    if not compiler:
        raise Unavailable("no JDK: javac is neither in JAVA_HOME nor on the PATH")
    return str(Path(compiler).resolve().parent / program)


def directory_of(pom: Path, name: str) -> Path:
    """Where what belongs to a pom.xml is kept."""
    directory = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """While no other process brings what is to be there."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def class_path(kept: Path, what: str, pom: Path, *arguments: str) -> str:
    """What a pom.xml needs to run.

    Args:
        kept: the file that holds it once it is known.
        what: it is, for messages.
        arguments: of Maven.

    Raises:
        Unavailable: it cannot be had.
    """
    with alone(kept):
        return _class_path(kept, what, pom, *arguments)


def _class_path(kept: Path, what: str, pom: Path, *arguments: str) -> str:
    if kept.exists():
        found = kept.read_text()
        if all(Path(jar).exists() for jar in found.split(os.pathsep)):
            return found
    maven = shutil.which("mvn")
    if not maven:
        raise Unavailable(f"no Maven (mvn) on the PATH, and {what} is not in {CACHE}")
    new = kept.with_suffix(".new")
    command = [maven, "-B", "-q", "-f", str(pom), *arguments, "dependency:build-classpath"]
    command += ["-Dmdep.includeScope=runtime", f"-Dmdep.outputFile={new}"]
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_MAVEN_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not bring {what} within {_MAVEN_SECONDS} s") from None
    if told.returncode != 0:
        lines = (told.stdout + told.stderr).splitlines()
        why = next((line for line in lines if line.startswith("[ERROR]")), "no reason given")
        raise Unavailable(f"Maven does not bring {what}: {why.removeprefix('[ERROR] ')[:300]}")
    new.replace(kept)
    return kept.read_text()


def compiled(directory: Path, sources: Sequence[Path], class_path: str) -> Path:
    """The jar of the classes of sources, in a directory where it is kept. (Java archives no classes of directories.)"""
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    jar = directory / f"classes-{key}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            command = [java("javac"), "--release", "11", "-encoding", "UTF-8", "-nowarn", "-proc:none"]
            command += ["-d", f"{temporary}/c", "-cp", class_path, *map(str, sources)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            with zipfile.ZipFile(f"{temporary}/jar", "w") as packed:
                for path in sorted(Path(temporary, "c").rglob("*.class")):
                    packed.write(path, path.relative_to(f"{temporary}/c"))
            with contextlib.suppress(FileExistsError):  # another run was faster
                os.link(f"{temporary}/jar", jar)
    return jar
