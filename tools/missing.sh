#!/bin/sh
# missing.sh PYTHON: says in one line what is not here that pip cannot bring, and fails; says nothing where all is here.
# Debian packs Python's headers and venv apart from Python. The compiler is $CC, or cc.

python=$1
compiler=${CC:-cc}

missing() {
    command -v make >/dev/null || echo make
    command -v "${compiler%% *}" >/dev/null || echo "a C compiler"
    if [ -z "$python" ]; then
        echo "Python 3.11 or newer"
        return
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "venv for $python"
    "$python" -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || echo "the headers of $python"
}

found=$(missing)
[ -z "$found" ] && exit 0
echo "missing: $(echo "$found" | paste -sd, - | sed 's/,/, /g')" \
    "(Debian, Ubuntu: apt-get install build-essential python3-dev python3-venv)" >&2
exit 1
