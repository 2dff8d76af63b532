"""The power is cut right after the commit point: what a write has waited for is on disk then, and nothing else.

A file system in a file (a loop device) is copied at that moment: in its file is what it has handed to its disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import subprocess, sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
import rmqstore_spark
from oracle import reference
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs import calls, disk
from support import reading, writing

home, action = Path(sys.argv[1]), sys.argv[2]
sizes = Sizes(segment=1 << 18, queue_file=400, slots=100, items=4000)
rows = [{"topic": f"T{n // 8}", "queueId": n % 8, "body": b"%d" % n} for n in range(1000)]
disk._MANY_TO_SYNC = 500 if "at once" in action else 1 << 30
root = home / "disk" / "store"
root.parent.mkdir()
# By itself the system brings nothing to disk before the cut.
subprocess.run(["mount", "-o", "loop,commit=300", home / "image", root.parent], check=True)
if "append" in action or "rebuild" in action:
    writing.write(root, rows, sizes=sizes)
    subprocess.run(["sync", "--file-system", root], check=True)  # not of other tests' disks: they rely on it

class Cut(BaseException):
    pass

def until_the_commit_point(call, path, *arguments, real=calls.do, counts=[], heads=[]):
    answer = real(call, path, *arguments)
    name = getattr(call, "__name__", "")
    if name in ("exchange", "rename_at") and path in (str(root / "commitlog"), str(root / "consumequeue")):
        counts.append(path)
    if name == "_pwrite" and len(arguments[0]) == 8 and path.startswith(str(root / "commitlog")):
        heads.append(bytes(arguments[0]))
        counts.extend(heads[1:])  # the first is the blank before which the log ends until then
    if counts and name == "fsync" and path == str(root):
        raise Cut
    return answer

calls.do, real = until_the_commit_point, calls.do
if "nothing" in action:
    disk.Tree.sync_all = lambda self, count: count > 500
try:
    rmqstore_spark.rebuild(root) if "rebuild" in action else writing.write(root, rows, sizes=sizes)
    sys.exit("it was never cut")
except Cut:
    calls.do = real
subprocess.run(["cp", "--sparse=always", home / "image", home / "image after"], check=True)
after = home / "after"
after.mkdir()
subprocess.run(["mount", "-o", "loop", home / "image after", after], check=True)
root = after / "store"
assert len(reading.read(root)) == (2000 if "append" in action else 1000)
try:
    writing.write(root, rows[:1], sizes=sizes)  # which finishes what was cut
except rmqstore_spark.RmqStoreError as error:
    sys.exit(f"not finished: {error}")
units = [reference.parse_unit(data, at) for at, data in reference.read_units(root)]
queued = {(t, q, o): unit.physical_offset for t, q, o, unit in reference.read_queues(root)}
if queued != {(u.topic.decode(), u.queue_id, u.queue_offset): u.physical_offset for u in units}:
    sys.exit("not all queued")
print(len(units), "messages")
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("how", ["one by one", "at once"])
@pytest.mark.parametrize("action", ["new", "append", "rebuild"])
def test_what_is_published_is_on_disk(tmp_path: Path, action: str, how: str) -> None:
    told = cut(tmp_path, f"{action}, {how}")
    assert told.returncode == 0, told.stderr
    assert told.stdout == ("2001 messages\n" if action == "append" else "1001 messages\n")


@pytest.mark.slow
def test_else_it_would_not_be(tmp_path: Path) -> None:
    """The tests above can fail: a write that waits for nothing leaves queues without content. Which of them come
    to disk by chance decides whether the next write finds it, or only we do. All of them do where the system writes
    out what lies in memory just then, as others fill it: so this may be tried again."""
    tried = []
    for attempt in ("first", "second", "third", "fourth", "fifth"):
        (home := tmp_path / attempt).mkdir()
        tried.append(cut(home, "new, nothing"))
        if tried[-1].returncode:
            break
        (home / "image").unlink()
        (home / "image after").unlink()
    assert "not finished" in tried[-1].stderr or "not all queued" in tried[-1].stderr, tried


def cut(home: Path, action: str) -> subprocess.CompletedProcess[str]:
    image = home / "image"
    image.touch()
    os.truncate(image, 300 << 20)
    try:
        made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        command = ["unshare", "--mount", sys.executable, "-c", CODE, str(home), action, *sys.path]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as why:
        pytest.skip(f"no file system in a file here: {why}")
    for reason in ("unshare failed", "unshare: ", "mount: "):
        if reason in told.stderr:
            pytest.skip(f"no file system in a file here: {told.stderr.strip().splitlines()[0]}")
    return told
