"""libFuzzer over the kernel's C, without Python above it: `make fuzz SECONDS=600`.

Each C file here is a harness, of the headers of native_io/ that it includes. Its mutator knows what it changes: a unit
is drawn whole, one field of it lies, its CRC is mended. Beside the sanitizers, which end the process at the first bad
access, the harnesses hold answers against those of a plain reading of the same bytes (plain.h), of other libraries, of
the same bytes in two windows, and of the code for other machines.

They begin with what was kept of earlier runs (tests/data/fuzz) and with pieces of real stores (seeds.py). An input that
fails is left in failed/; commit it with the mending, as every run tries those first.
"""
