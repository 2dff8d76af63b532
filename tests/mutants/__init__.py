"""Mutants of the package: one small change each, and the quick tests that reach the changed line have to notice.

* `changes.py`: which changes there are;
* `reach.py`: which quick tests come to which line, found out once;
* `judge.py`: runs the tests on one mutant after the other, each in a fork of a process that has everything loaded;
* `run.py`: draws a sample, has it judged, and says how many live;
* `kernel.py`: the same for the functions of the kernel's C;
* `excused.txt`: those that may live, and why (`excuses.py` reads it).

Strings, annotations, imports and what only a type checker reads are left as they are. Tests with Spark and brokers are
not asked, and of the slow ones a case each, or more where that is wanted (`--others`): what lives here may die there.

Where it stands (November 2026): of 2,000 drawn with seed 1201 the first 1,553 were judged, each by two seconds of the
tests that reach it: killed were 1,027, 66 % (read 199 of 314, store 518 of 802, write 139 of 192, tables 171 of 245).
Of those that lived 72 need no test, most of them sizes of what is done at once; 56 are reached by no test that can run
here (store/io/guest.py needs a disk). Of 42 that were asked again in up to 25 seconds of tests three died: what lives
is not short of time, but of tests. The goal is 90 %. A minute of a processor judges 62, and 33 before the judge stayed
up; of those that die half do so by the first test that is asked.

Of 80 of the kernel's 5,800, drawn with seed 1201, the tests of tests/kernel killed 53, 66 %; 6 are not reached by them,
and of the 21 that lived four need no test, and three were in what runs while the kernel is loaded, which is not changed
any more. That took two minutes.
"""
