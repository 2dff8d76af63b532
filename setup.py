"""The compiled kernel. Everything else about the package is in setup.cfg."""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildHereToo(build_ext):
    """Leaves a copy of the extensions in the source tree, whatever it is built for.

    Spark's workers run with the driver's current directory first on sys.path, so in a checkout they import native_io
    from here, not from where it is installed. After a plain `pip install .` both copies must work. (`inplace` in
    setup.cfg does not do: bdist_wheel turns it off.)
    """

    def run(self) -> None:
        # A module that an older build made for one version of Python would be imported instead of the one for all.
        for one_version in Path("native_io").glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            one_version.unlink()
        super().run()
        if not self.inplace:  # else it has just been done
            self.copy_extensions_to_source()


def kernel(name: str) -> Extension:
    """A module of the kernel. It is compiled anew when any header or declaration has changed."""
    sources = Path("native_io")
    return Extension(
        f"native_io.{name}",
        [f"native_io/{name}.pyx"],
        depends=sorted(map(str, [*sources.glob("*.h"), *sources.glob("*.pxd")])),
        include_dirs=["native_io"],
        # One wheel for all Pythons since 3.11 (`abi3`; setup.cfg names the wheel after it). Loops cost the same; a call
        # from Python costs a microsecond more, and there is one for some 500 KiB of log.
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        # No -march: a wheel must run on every machine of its kind. Faster instructions are chosen at run time.
        # A module that uses another one's classes includes all of its headers, and calls few of their functions.
        extra_compile_args=["-O3", "-fvisibility=hidden", "-Wno-unused-function"],
    )


KERNEL = ("_common", "_read", "_write", "_io", "_rocksdb", "_config")
# The Makefile compiles it by itself, once for all of its environments. pip would compile it for each of them: it brings
# a Cython of its own every time, whose declarations are newer than all that was compiled before.
IS_APART = "RMQ_KERNEL_APART" in os.environ

setup(cmdclass={"build_ext": BuildHereToo}, ext_modules=[] if IS_APART else [kernel(name) for name in KERNEL])
