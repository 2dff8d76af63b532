"""Mutants of the package: one small change each, and the quick tests that reach the changed line have to notice.

* `changes.py`: which changes there are;
* `reach.py`: which quick tests come to which line, found out once;
* `judge.py`: runs the tests on one mutant after the other, each in a fork of a process that has everything loaded;
* `run.py`: draws a sample, has it judged, and says how many live.

Strings, annotations, imports and what only a type checker reads are left as they are. Tests with Spark, brokers and the
slow ones are not asked: what lives here may die there.
"""
