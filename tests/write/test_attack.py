"""Stores that somebody has prepared: whoever reads or writes them, nothing outside is touched, and errors are one line.

The writer is root, as far as the tests are, on a store that belongs to somebody else; or that user. SECURITY.md says
what is promised.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from support import writing
from support.attacking import ACTIONS, append, messages, overwrite
from support.killing import Killed, Stopper, stopped_at_every_change
from support.prepared import (
    IS_ROOT,
    LINKS,
    PLACES,
    SOMEBODY,
    WRITERS,
    Ground,
    bound_socket,
    device,
    directory,
    fifo,
    link_at,
)

import rmqstore_spark
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.write.build import stretch
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.fs.disk import Tree


def attempt(ground: Ground, action: str, writer: str) -> str | None:
    """Ground.attempt() of one of ACTIONS."""
    return ground.attempt(lambda: ACTIONS[action](ground.root), writer)


# ---- links


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", LINKS)
def test_links(ground: Ground, place: str, writer: str) -> None:
    """Refused by name before anything is made; a reader goes where they lead, as everybody does."""
    expected = messages(ground.root)
    LINKS[place](ground)
    ground.give(ground.root)
    before = ground.root.stat().st_mtime_ns
    for action in ("append", "rebuild", "overwrite"):
        told = attempt(ground, action, writer)
        assert told is not None
        assert "found a link" in told, (action, told)
        assert ground.root.stat().st_mtime_ns == before
    for action in ("check", "prepare", "read", "select", "copy", "salvage"):
        attempt(ground, action, writer)
    assert messages(ground.root) == expected


@pytest.mark.parametrize("writer", WRITERS)
def test_links_in_the_place_of_files(ground: Ground, writer: str) -> None:
    """Segments, index and queue files: a write does not look at what is behind them, even where it is sound."""
    for number, kind in enumerate(("commitlog", "index", "consumequeue/TopicA/0")):
        path = max((ground.root / kind).iterdir())
        moved = ground.victim / f"moved-{number}"
        path.rename(moved)
        path.symlink_to(moved)
        for action in ("append", "rebuild") if kind != "index" else ("append",):
            told = attempt(ground, action, writer)
            if kind != "consumequeue/TopicA/0" or action != "rebuild":
                assert told is not None
                assert "a link" in told or "call rmqstore_spark.rebuild(store)" in told, (kind, action, told)
        path.unlink(missing_ok=True)
        moved.rename(path)
    assert attempt(ground, "rebuild", writer) is None


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["abort", "topics.json"])
def test_links_of_a_crashed_store(ground: Ground, name: str, writer: str) -> None:
    link_at(*(["config", name] if name == "topics.json" else [name]), to="topics.json")(ground)
    (ground.root / "checkpoint").unlink()
    for action in ("append", "rebuild"):
        assert "found a link" in str(attempt(ground, action, writer))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("through_link", [False, True])
def test_the_store_itself_may_be_a_link(ground: Ground, writer: str, through_link: bool) -> None:
    """That is what RocketMQ's users set up."""
    link = ground.home / "ln"
    link.symlink_to(ground.root)
    ground.root = link if through_link else ground.root
    real = ground.root.resolve()
    for action in ("append", "rebuild", "append"):
        assert attempt(Pointed(ground, real), action, writer) is None
    assert messages(real)[-2:] == [b"appended"] * 2
    with ground.acting_as(writer):
        overwrite(ground.root)
    assert link.is_symlink()
    assert not real.is_symlink()
    assert messages(real) == messages(link) == [b"instead"]
    assert {path.name for path in ground.home.iterdir()} == {"ln", "store", "victim"}


class Pointed(Ground):
    """The same ground, of which another directory is the store."""

    def __init__(self, ground: Ground, real: Path) -> None:
        self.home, self.victim, self._real, self.root = ground.home, ground.victim, real, ground.root

    def outside(self) -> dict[str, tuple[Any, ...]]:
        given, self.root = self.root, self._real
        try:
            return super().outside()
        finally:
            self.root = given


# ---- hard links


@pytest.mark.parametrize("writer", WRITERS)
def test_hard_links(ground: Ground, writer: str) -> None:
    """Every file of the store has a second name elsewhere: none of them is changed under that one, or given away."""
    others = ground.victim / "others"
    others.mkdir()
    for number, path in enumerate(sorted(p for p in ground.root.rglob("*") if p.is_file())):
        os.link(path, others / str(number))
        if IS_ROOT:
            os.chown(path, 0, 0)
            path.chmod(0o644)
    if writer == "owner" and IS_ROOT:
        for path in others.iterdir():
            os.chown(path, SOMEBODY, SOMEBODY)  # who is not root, cannot link a stranger's files
    count = len(messages(ground.root))
    for action in ("append", "rebuild", "append", "overwrite"):
        assert attempt(ground, action, writer) is None
        count = 1 if action == "overwrite" else count + (action == "append")
        assert len(messages(ground.root)) == count


def test_what_somebody_puts_in_the_place_of_a_file_being_made_is_not_written_to(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue file is opened once more to be finished. By then a hard link to another file may have its name."""
    from rmqstore_spark.write.fs import disk
    from rmqstore_spark.write.fs.new_file import NewFile

    real = disk.Tree.reopen

    def swapped(tree: disk.Tree, path: str, identity: tuple[int, int]) -> NewFile:
        os.unlink(path)
        os.link(ground.victim / "file", path)
        return real(tree, path, identity)

    monkeypatch.setattr(disk.Tree, "reopen", swapped)
    assert "another process interferes" in str(attempt(ground, "append", WRITERS[0]))


# ---- what is no file


@pytest.mark.parametrize("kind", [fifo, bound_socket, directory, *([device] if IS_ROOT else [])])
@pytest.mark.parametrize("place", [*PLACES, ".rmqstore-spark/commit/journal", "config/consumerOffset.json"])
def test_what_is_no_regular_file(ground: Ground, place: str, kind: Callable[[Path], None]) -> None:
    """Never opened for real: nobody waits. For a reader it is a hint less, or a segment less."""
    expected = messages(ground.root)
    ground.put(place, kind)
    steps = [*itertools.product(("read", "select", "check"), WRITERS), ("copy", WRITERS[0]), ("salvage", WRITERS[0])]
    for action, writer in [*steps, *itertools.product(("append", "rebuild"), WRITERS)]:
        told = attempt(ground, action, writer)
        if action == "read":
            assert (told is None) == (place != "commitlog/*" or kind is directory)
    if place != "commitlog/*":
        assert messages(ground.root)[: len(expected)] == expected


# ---- names


@pytest.mark.parametrize(
    "name",
    [
        f"commitlog/{'9' * 20}",
        f"consumequeue/TopicA/0/{'9' * 20}",
        f"consumequeue/TopicA/{'9' * 30}/{0:020d}",
        f"consumequeue/TopicA/4294967296/{0:020d}",
        f"consumequeue/TopicA/-5/{0:020d}",
        f"consumequeue/TopicA/00/{0:020d}",
        f"consumequeue/TopicA/²/{0:020d}",
        f"consumequeue/{0:020d}/0/{0:020d}",
        f"index/{'9' * 17}",
        f"index/{'9' * 18}",
        "commitlog/\n\x1b[2J\x1b]0;title\x07",
        f"consumequeue/\n\x1b[31mred/0/{0:020d}",
        "\u202egnp.exe\u2028",
        os.fsdecode(b"\xff\xfe"),
        "consumequeue/TopicA/0/notes.txt",
        "index/notes.txt",
        "config/notes.txt",
    ],
)
def test_names(ground: Ground, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """None of them makes a number that is too large, moves a cursor, or ends up in a log as it is."""
    caplog.set_level(logging.DEBUG, "rmqstore_spark")
    expected = messages(ground.root)
    path = ground.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(200))
    ground.give(ground.root)
    for action, writer in itertools.product(("read", "select", "check", "overwrite", "append", "rebuild"), WRITERS):
        if action != "overwrite":
            attempt(ground, action, writer)
        elif "/" not in name or "commitlog" in name:
            assert "mode overwrite would delete this" in str(attempt(ground, action, writer))
    assert messages(ground.root)[: len(expected)] == expected
    assert all(message.isprintable() for message in caplog.messages)


def test_texts_are_escaped() -> None:
    error = RmqStoreError("a\nb\x1b[31m\u202e\u2028\udcff\x9b\x00 c\\n é 中")
    assert str(error) == "a\\nb\\x1b[31m\\u202e\\u2028\\udcff\\x9b\\x00 c\\n é 中"
    assert str(RmqStoreError(str(error))) == str(error)


def test_names_that_are_no_path() -> None:
    for topic in ("", ".", "..", "a/b", "/abs", "a\0b", "a\nb", "\x1b[31m", "x" * 256, "é" * 128, "\udcff"):
        assert queue_path(topic, 0) is None
    for queue_id in (-1, -5, 1 << 31):
        assert queue_path("T", queue_id) is None
    assert queue_path("%RETRY%g a|b", 7) == "%RETRY%g a|b/7"
    assert queue_path("中" * 85, (1 << 31) - 1) == "中" * 85 + "/2147483647"
    assert queue_path("...", 0) == ".../0"


def test_paths_that_are_not_in_a_tree(ground: Ground) -> None:
    """A second net: nothing below makes such ones."""
    with Tree(str(ground.root)) as tree:
        for name in ("..", "../victim", "../victim/file", ".", "", "a/../../victim/file", "config/..", "config/./x"):
            with pytest.raises(RmqStoreError, match="expected a path in"):
                tree.find(f"{ground.root}/{name}")
        for path in (ground.victim, ground.home, Path(f"{ground.root}2"), Path("/etc/passwd"), Path("relative")):
            with pytest.raises(RmqStoreError, match="expected a path in"):
                tree.new_file(str(path / "x"))


HOSTILE_TOPICS = [b"/abs", b"../../x", b"a/b", b".", b"..", b"", b"a\nb", b"a\0b", b"\x1b[31m", b"x\xff", b"T/../T"]


@pytest.mark.parametrize("writer", WRITERS)
def test_rebuild_of_a_log_that_names_paths(ground: Ground, writer: str, caplog: pytest.LogCaptureFixture) -> None:
    """Messages of which no queue can be made stay in the log, and get none; the log says which they are."""
    shutil.rmtree(ground.root)
    log = b""
    queues = [(topic, queue_id) for topic in HOSTILE_TOPICS for queue_id in (0, -5)]
    for number, (topic, queue_id) in enumerate([*queues, *[(b"Good", 0)] * 5, *queues]):
        body = b"message %d" % number
        offset = max(0, number - len(queues)) if topic == b"Good" else number // len(queues) // 2
        log += reference.encode_unit(
            topic=topic, queue_id=queue_id, queue_offset=offset, physical_offset=len(log), body=body
        )
    (ground.root / "commitlog").mkdir(parents=True)
    (ground.root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(1 << 16, b"\0"))
    (ground.root / "abort").touch()
    ground.give(ground.root)
    expected = messages(ground.root)
    assert len(expected) == 2 * len(queues) + 5

    assert attempt(ground, "rebuild", writer) is None
    assert messages(ground.root) == expected
    made = sorted(str(p.relative_to(ground.root / "consumequeue")) for p in ground.root.glob("consumequeue/*/*"))
    assert made == ["Good/0", "x\ufffd/0"]
    named = [message for message in caplog.messages if "get no ConsumeQueue units" in message]
    assert len(named) == 20  # of each queue once, but for the last one; the one with U+FFFD can be made
    assert any("and likewise for 1 more queues" in message for message in caplog.messages)
    assert all(message.isprintable() for message in named)
    assert any("'../../x', queue 0" in message for message in named)
    assert any("queue -5" in message for message in named)
    table = json.loads((ground.root / "config" / "topics.json").read_text())["topicConfigTable"]
    assert sorted(table) == ["Good", "x\ufffd"]
    assert attempt(ground, "append", writer) is None
    assert messages(ground.root) == [*expected, b"appended"]


# ---- JSON


def topics_of(count: int) -> str:
    return json.dumps({"topicConfigTable": {f"t{i}": {"readQueueNums": 4} for i in range(count)}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"topicConfigTable":' + '{"a":' * 100_000, "at most"),
        ('{"topicConfigTable":{"T":' + "[" * 40 + "]" * 40 + "}}", "at most"),
        ('{"topicConfigTable":{"TopicA":{"readQueueNums":"many"}}}', "readQueueNums, found 'many'"),
        ('{"topicConfigTable":{"TopicA":{"readQueueNums":-1}}}', "readQueueNums, found -1"),
        ('{"topicConfigTable":{"TopicA":{"readQueueNums":true}}}', "readQueueNums, found True"),
        ('{"topicConfigTable":{"TopicA":{"readQueueNums":1e999}}}', "readQueueNums, found inf"),
        ('{"topicConfigTable":{"TopicA":{"readQueueNums":' + "9" * 5000 + "}}}", "cannot be understood"),
        ('{"topicConfigTable":7}', "expected an object"),
        ('{"topicConfigTable":{"\\n\\u001b[31m":{"readQueueNums":{}}}}', "readQueueNums"),
        # Made when they are needed: children import this module too.
        pytest.param(lambda: "[" * 50_000_000, "at most", id="50 MB of ["),
        pytest.param(
            lambda: "{" + ",".join(f'"k{i}":{i}' for i in range(4_000_000)) + "}", "at most", id="4 million keys"
        ),
        ("\x00", "cannot be understood"),
        ('{"topicConfigTable":{"\\ud800":{"readQueueNums":4}},"dataVersion":{"counter":"x"}}', None),
        ('{"topicConfigTable":{"TopicA":[]},"dataVersion":[]}', None),
    ],
    ids=lambda value: None if value is None else str(value)[-30:],
)
def test_json(ground: Ground, text: str | Callable[[], str], why: str | None) -> None:
    text = text() if callable(text) else text
    path = ground.root / "config" / "topics.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    expected = messages(ground.root)
    begin = time.process_time()
    told = attempt(ground, "append", WRITERS[0])
    assert (told is None) == (why is None), told
    if why is not None:
        assert why in str(told)
        assert "topics.json: cannot be understood" in str(told)
        assert path.stat().st_size == len(text)
    attempt(ground, "rebuild", WRITERS[0])
    attempt(ground, "select", WRITERS[0])
    assert time.process_time() - begin < 60
    assert messages(ground.root)[: len(expected)] == expected


# ---- the workshop


def inode(path: Path) -> int:
    return path.stat().st_ino if path.exists() else 0


MALFORMED = [
    b"",
    b"{",
    b"[1]",
    b"null",
    b"7",
    b'"x"',
    b"\xff\xfe",
    b"[" * 60_000,
    b"{" * 100_000,
    b'{"a":' * 10_000,
    b" " * 1_000_000,
    b'{"version":1}',
    b'{"version":true,"made":{"commitlog":1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":[],"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":"1"},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":-1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":1.5},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":1},"had_topics":0,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":1},"had_topics":true}',
    b'{"version":1,"made":{"commitlog":1},"had_topics":true,"has_topics":true,"more":1}',
    b'{"version":1,"made":{"../victim":1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"consumequeue":1,"commitlog":1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"index":1,"consumequeue":1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"made":{"commitlog":%d},"had_topics":true,"has_topics":true}' % (1 << 80),
    b'{"made":{"commitlog":1},"had_topics":true,"has_topics":true}',
    b'{"version":0,"made":{"commitlog":1},"had_topics":true,"has_topics":true}',
    b'{"version":1,"version":1e9,"made":{"commitlog":1},"had_topics":true,"has_topics":true}',
]


@pytest.mark.parametrize("journal", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_journal_is_set_aside(ground: Ground, journal: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Said in the log, never followed, and the next write goes on."""
    home = ground.root / ".rmqstore-spark" / "commit"
    (home / "new" / "commitlog").mkdir(parents=True)
    (home / "journal").write_bytes(journal)
    (ground.root / "checkpoint").unlink()
    ground.give(ground.root)
    expected = messages(ground.root)
    assert attempt(ground, "append", WRITERS[0]) is None
    assert messages(ground.root) == [*expected, b"appended"]
    assert any("not followed, and moved to" in message for message in caplog.messages)
    (aside,) = (ground.root / ".rmqstore-spark").glob("aside-*")
    assert (aside / "journal").read_bytes() == journal


def test_a_journal_of_a_later_version(ground: Ground) -> None:
    home = ground.root / ".rmqstore-spark" / "commit"
    home.mkdir(parents=True)
    (home / "journal").write_text('{"version": 2, "steps": []}')
    (ground.root / "checkpoint").unlink()
    ground.give(ground.root)
    for action in ("append", "rebuild", "check"):
        assert "by a newer rmqstore-spark: expected version 1, found 2; let that version" in str(
            attempt(ground, action, WRITERS[0])
        )


def plant_tree(ground: Ground, top: Path, rng: random.Random) -> None:
    """Something that a journal may be about, or that somebody hopes it is."""
    names = ("commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "victim", "topics.json")
    for name in rng.sample(names, rng.randrange(len(names))):
        plant(ground, top / name, rng)
    for name in (
        f"commitlog/{0:020d}",
        f"consumequeue/TopicA/0/{0:020d}",
        f"consumequeue/TopicA/0/{rng.choice((0, 200, 400)):020d}",
        f"consumequeue/TopicA/{rng.choice(('0', '1', '-5', 'x'))}",
        f"consumequeue/{rng.choice(('TopicA', 'New', f'{7:020d}'))}",
        "index/20200101000000000",
        "index/notes",
        "config/topics.json",
        "config/other",
        "topics.json",
        "checkpoint",
    ):
        if rng.random() < 0.4:
            with contextlib.suppress(OSError):
                if (top / name).parent.resolve().is_relative_to(top):  # it is the writer's task to be careful, not ours
                    (top / name).parent.mkdir(parents=True, exist_ok=True)
                    plant(ground, top / name, rng)


def plant(ground: Ground, path: Path, rng: random.Random) -> None:
    if path.is_symlink() or path.exists():
        return
    victim = rng.choice([ground.victim, *ground.victim.rglob("*")])
    with contextlib.suppress(OSError):
        match rng.randrange(8):
            case 0:
                path.symlink_to(victim)
            case 1:
                os.link(rng.choice([p for p in ground.victim.rglob("*") if p.is_file()]), path)
            case 2:
                os.mkfifo(path)
            case 3 | 4:
                path.mkdir()
            case 5:
                path.symlink_to(os.path.relpath(ground.root / "commitlog", path.parent))
            case _:
                path.write_bytes(rng.randbytes(rng.choice((0, 20, 4096))))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("part", range(4))
def test_any_journal_that_fits_does_no_harm(ground: Ground, writer: str, part: int, rng: random.Random) -> None:
    """The owner may be the attacker: what a journal may say, on any workshop, changes nothing outside and loses no
    message of the log; and the store can be written to again."""
    sound = ground.home / "sound"
    shutil.copytree(ground.root, sound)
    expected = messages(sound)
    ground.give(sound)
    obeyed, journals = 0, int(os.environ.get("RMQ_JOURNALS", "16"))
    for _ in range(journals):
        shutil.rmtree(ground.root)
        shutil.copytree(sound, ground.root)
        home = ground.root / ".rmqstore-spark" / "commit"
        (home / "new").mkdir(parents=True)
        (home / "old").mkdir()
        plant_tree(ground, home / "new", rng)
        plant_tree(ground, home / "old", rng)
        plant_tree(ground, home, rng)
        exchanged = rng.choice((("commitlog",), ("consumequeue", "index"), ("consumequeue",)))
        made = {name: rng.choice((inode(ground.root / name), inode(home / "new" / name), 7)) for name in exchanged}
        flags = {"had_topics": rng.random() < 0.5, "has_topics": rng.random() < 0.5}
        if (home / "journal").is_symlink() or (home / "journal").exists():
            shutil.rmtree(home / "journal") if (home / "journal").is_dir() else (home / "journal").unlink()
        (home / "journal").write_text(json.dumps({"version": 1, "made": made, **flags}))
        if rng.random() < 0.9:
            (ground.root / "checkpoint").unlink()
        if rng.random() < 0.5:
            (ground.root / "abort").write_bytes(rng.choice((b"rmqstore-spark", b"17", b"")))
        ground.give(ground.root)
        links = {path for path in ground.victim.rglob("*") if path.is_file() and path.stat().st_nlink > 1}
        if IS_ROOT:
            for path in links:
                os.chown(path, 0, 0)  # given away with the store's just now, and not by us
        action = rng.choice(("append", "rebuild", "check"))
        told = attempt(ground, action, writer)
        assert messages(ground.root)[: len(expected)] == expected, (action, told)
        obeyed += not (ground.root / ".rmqstore-spark" / "commit").exists()
        if told is not None or action == "check":
            told = attempt(ground, "rebuild", writer)
        if told is None:
            assert attempt(ground, "append", writer) is None
            assert messages(ground.root)[: len(expected)] == expected
            assert messages(ground.root)[-1] == b"appended"
        else:  # what the owner could have put there himself: a planted directory with links in it, a broken file
            assert "found a link" in told or "expected a" in told or "topics.json: cannot be understood" in told, told
    assert obeyed > journals // 4


@pytest.mark.skipif(not IS_ROOT, reason="only root can make another user's directory")
def test_a_workshop_of_somebody_else(ground: Ground) -> None:
    (ground.root / ".rmqstore-spark").mkdir(exist_ok=True)
    os.chown(ground.root / ".rmqstore-spark", 4242, 4242)
    for action in ("append", "rebuild", "check", "prepare"):
        assert f"expected the owner of the store, user {SOMEBODY}, found user 4242" in str(
            attempt(ground, action, "root")
        )


def test_deep_directories_are_thrown_away(ground: Ground) -> None:
    """More of them than any call can go down."""
    aside = ground.root / ".rmqstore-spark" / "staging-old"
    aside.mkdir(parents=True)
    fd = os.open(aside, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    if IS_ROOT:
        os.chown(aside.parent, SOMEBODY, SOMEBODY)
    os.utime(aside, (0, 0))
    append(ground.root)
    assert not aside.exists()


def test_a_staged_message_that_was_changed(ground: Ground) -> None:
    """The owner can write to what root has staged. Only the body has a checksum."""
    for topic in (b"../../victim", b"/etc/passwd/", b"a\0bbbbbbbbbb"):
        _, (staged,) = writing.stage_rows(ground.root, [[{"topic": "TopicOfTwelv", "body": b"x"}]])
        path = Path(staged.path)
        path.write_bytes(path.read_bytes().replace(b"TopicOfTwelv", topic))
        before = ground.outside(), messages(ground.root)
        with pytest.raises(RmqStoreError, match="a staged message was changed: it is for queue 0 of topic") as told:
            commit(str(ground.root), [staged], Settings(Sizes()))
        assert str(told.value).isprintable()
        assert (ground.outside(), messages(ground.root)) == before


# ---- somebody who is quick


@pytest.mark.parametrize("when", ["make_directory", "exchange"])
def test_a_new_store_is_swapped_for_a_link(ground: Ground, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after its directory was made, and right before it takes the old one's name."""
    beside = ground.root.with_name(f".{ground.root.name}.rmqstore-spark-new")
    before, expected, real = ground.outside(), messages(ground.root), getattr(Tree, when)
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        if beside.exists() and not swaps:
            swaps += 1
            beside.rename(ground.home / "elsewhere")
            beside.symlink_to(ground.victim)

    def swapping(tree: Tree, path: str, *more: str) -> None:
        if when == "exchange":
            swap()
        real(tree, path, *more)
        if when == "make_directory":
            swap()

    monkeypatch.setattr(Tree, when, swapping)
    with pytest.raises(RmqStoreError):
        overwrite(ground.root)
    assert swaps == 1
    assert ground.root.is_dir()
    assert not ground.root.is_symlink()
    assert messages(ground.root) == expected
    beside.unlink()
    shutil.rmtree(ground.home / "elsewhere")
    assert ground.outside() == before


ATTACKER = """
import ctypes, os, random, select, sys, time
root, victim, seed = sys.argv[1:]
rng = random.Random(seed)
libc = ctypes.CDLL(None)
spare = root + ".spare"
os.symlink(victim, spare)
places = ["consumequeue", "index", "config", ".rmqstore-spark", ".rmqstore-spark/commit", ".rmqstore-spark/commit/new",
          ".rmqstore-spark/commit/old", ".rmqstore-spark/commit/new/consumequeue", ".rmqstore-spark/commit/new/index",
          ".rmqstore-spark/commit/new/commitlog", ".rmqstore-spark/commit/new/config", "consumequeue/TopicA",
          "consumequeue/TopicA/0", ".rmqstore-spark/commit/new/consumequeue/TopicA", "lock", "checkpoint",
          ".rmqstore-spark/commit/new/consumequeue/TopicA/0", "commitlog", "abort", "config/topics.json"]
beside = "../.store.rmqstore-spark-new"
places += [beside + place for place in ("", "/commitlog", "/consumequeue", "/consumequeue/TopicA", "/index", "/config")]
def swap(place):  # through no link of its own: that would be the attacker's change outside, not the writer's
    *way, name = place.split("/")
    fd = os.open(os.path.dirname(root) if way[:1] == [".."] else root, os.O_RDONLY)
    try:
        for part in way:
            if part != "..":
                fd, above = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd), fd
                os.close(above)
        return libc.renameat2(-100, os.fsencode(spare), fd, os.fsencode(name), 2) == 0
    except OSError:
        return False
    finally:
        os.close(fd)
swaps = 0
print("ready", flush=True)
while swaps <= 1000 or not select.select([0], [], [], 0)[0]:  # until it is told to end
    for place in rng.sample(places, 5):
        if swap(place):
            swaps += 1
            for _ in range(rng.randrange(200)):
                pass
            swap(place)
    time.sleep(rng.choice((0, 0, 0.0005, 0.002)))  # else nothing gets beyond the first look
print(swaps, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("action", ["append", "rebuild", "overwrite"])
def test_directories_are_swapped_for_links_meanwhile(
    ground: Ground, action: str, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """By another process, thousands of times: whatever the writer makes of it, it is not misled."""
    caplog.set_level(logging.CRITICAL)
    seconds = float(os.environ.get("RMQ_RACE_SECONDS", "2"))
    sound = ground.home / "sound"
    shutil.copytree(ground.root, sound)
    before = ground.outside()
    command = [sys.executable, "-c", ATTACKER, str(ground.root), str(ground.victim), str(rng.random())]
    tried, errors = 0, Counter[str]()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdin
        assert attacker.stdout
        assert attacker.stdout.readline() == "ready\n"
        end = time.monotonic() + seconds
        while attacker.poll() is None:
            if tried > 20 and time.monotonic() > end:
                attacker.stdin.close()
            tried += 1
            try:
                ACTIONS[action](ground.root)
            except RmqStoreError as error:
                errors[str(error).partition(": ")[2][:40]] += 1
        swaps = int(attacker.stdout.readline())
    print(f"{swaps} swaps, {tried} tries, {errors.total()} failed: {errors}")
    after = ground.outside()
    shutil.rmtree(sound)
    assert {k: v for k, v in after.items() if "victim" in k} == {k: v for k, v in before.items() if "victim" in k}
    assert swaps > 1000
    assert tried > 20  # how many of them fail is chance


# ---- whose files


def not_somebodys(root: Path) -> list[str]:
    paths = (root, *root.rglob("*"))
    return [str(path) for path in paths if (path.lstat().st_uid, path.lstat().st_gid) != (SOMEBODY, SOMEBODY)]


@pytest.mark.skipif(not IS_ROOT, reason="only root writes for others")
@pytest.mark.parametrize("new", [False, True])
def test_what_root_writes_belongs_to_the_stores_owner(ground: Ground, new: bool, stop: Stopper) -> None:
    """From the moment it is made: also what is left when root is killed."""
    if new:
        shutil.rmtree(ground.root)
        ground.root.mkdir()
        ground.give(ground.root)
    rows = [{"topic": topic, "queueId": i % 3, "keys": "k", "body": b"x"} for i, topic in enumerate("ABCD" * 5)]
    for overwriting in (False, False, True):
        writing.write(ground.root, rows, sizes=writing.SMALL, overwrite=overwriting)
        assert not_somebodys(ground.root) == []
        shutil.rmtree(ground.root / "index")
        (ground.root / "config" / "topics.json").unlink()
        (ground.root / "config").rmdir()
        (ground.root / "lock").unlink()
        sizes = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 20, "maxIndexNum": 50}
        rmqstore_spark.rebuild(ground.root, **sizes)
        assert {path.name for path in ground.root.iterdir()} >= {"index", "config", "lock", "consumequeue"}
        assert not_somebodys(ground.root) == []
    _, staged = writing.stage_rows(ground.root, [rows])
    assert not_somebodys(ground.root) == []
    stop.at(60)
    with pytest.raises(Killed):
        commit(str(ground.root), staged, Settings(Sizes()))
    stop.at(None)
    assert (ground.root / ".rmqstore-spark" / "commit" / "new").exists()
    assert len(not_somebodys(ground.root)) <= 1  # what was just being made, and is empty
    with ground.acting_as("owner"):
        append(ground.root)


@pytest.mark.skipif(not IS_ROOT, reason="only root has files in another user's store")
def test_a_file_that_root_has_edited(ground: Ground) -> None:
    """Linux lets nobody link a stranger's file that he may not write to."""
    path = ground.root / "config" / "topics.json"
    os.chown(path, 0, 0)
    path.chmod(0o644)
    assert attempt(ground, "append", "owner") is None
    assert messages(ground.root)[-1] == b"appended"
    assert path.stat().st_uid == SOMEBODY


# ---- other file systems


MOUNTED = """
set -e
{mount}
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["another file system", "a directory of the same one"])
@pytest.mark.parametrize("place", ["commitlog", "consumequeue", "index", "config", "consumequeue/TopicA/0"])
def test_mount_points(ground: Ground, place: str, kind: str) -> None:
    """Files cannot be renamed on to them, which must be known before the messages count."""
    elsewhere = ground.home / "elsewhere"
    shutil.move(ground.root / place, elsewhere)
    (ground.root / place).mkdir()
    expected = sorted(path.name for path in elsewhere.rglob("*"))
    target = ground.root / place
    mount = f"mount --bind '{elsewhere}' '{target}'"
    if kind == "another file system":
        mount = f"mount -t tmpfs none '{target}' && cp -a '{elsewhere}/.' '{target}'"
    code = (
        "import sys; sys.path[:0] = sys.argv[3:]\n"
        "from support import attacking\n"
        "from pathlib import Path\n"
        "from rmqstore_spark.errors import RmqStoreError\n"
        "for action in sys.argv[2].split(','):\n"
        "    try: attacking.ACTIONS[action](Path(sys.argv[1])); print('done')\n"
        "    except RmqStoreError as error: print(error)\n"
        "print(len(attacking.messages(Path(sys.argv[1]))))\n"
    )
    actions = ["append", "rebuild", "overwrite", "check"] if place != "consumequeue/TopicA/0" else ["append"]
    command = ["unshare", "--mount", *([] if IS_ROOT else ["--user", "--map-root-user"]), "sh", "-c"]
    command += [MOUNTED.format(mount=mount), "sh", sys.executable, "-c", code, str(ground.root), ",".join(actions)]
    told = subprocess.run([*command, *sys.path], capture_output=True, text=True, check=False)
    if "unshare failed" in told.stderr or "permission denied" in told.stderr:
        pytest.skip(f"no mount namespaces here: {told.stderr.strip()}")
    *lines, count = told.stdout.splitlines()
    assert len(lines) == len(actions), told.stderr
    for action, line in zip(actions, lines, strict=True):
        expects = "mount point" if action != "check" or place != "consumequeue/TopicA/0" else "done"
        assert expects in line, (action, line)
    assert count == "60"
    assert sorted(path.name for path in elsewhere.rglob("*")) == expected
    assert not (ground.root / "abort").exists()
    assert (ground.root / "checkpoint").exists()


# ---- after the commit point


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("error", [OSError, RmqStoreError])
@pytest.mark.parametrize("how", ["stretch", "exchange", "overwrite"])
def test_what_fails_after_the_commit_point_is_told(
    ground: Ground,
    stop: Stopper,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    error: type[Exception],
) -> None:
    """Whatever fails then, and however often: an error only where the disk does not say that it has the messages, and
    the text says that they are written; else a warning. rebuild() and the next write go on."""
    if how == "exchange":
        monkeypatch.setattr(stretch, "fits", lambda *_: False)
    settings = Settings(Sizes(), overwrite=how == "overwrite")
    old = messages(ground.root)
    expected = [*(old if how != "overwrite" else []), b"new"]
    _, staged = writing.stage_rows(ground.root, [[{"topic": "New", "queueId": 0, "body": b"new"}]])
    shutil.copytree(ground.root, ground.home / "before")

    def begin() -> Callable[[], object]:
        shutil.rmtree(ground.root)
        shutil.copytree(ground.home / "before", ground.root)
        caplog.clear()
        return lambda: commit(str(ground.root), staged, settings)

    outcomes = []
    for each in stopped_at_every_change(stop, begin, error, raises=RmqStoreError, for_ever=True):
        is_written = messages(ground.root) == expected
        assert is_written or messages(ground.root) == old
        if each.told:
            outcomes.append("not sure" if is_written else "none")
            assert ("all messages are written, do not write them again" in each.told) == is_written
        else:
            outcomes.append("all")
            assert is_written
            is_told = "the cleanup is not complete" in caplog.text or "is not deleted" in caplog.text
            assert is_told or not each.has_stopped or "checked.json" in stop.last
        rmqstore_spark.rebuild(ground.root)
        assert messages(ground.root) == (expected if is_written else old)
        append(ground.root)
        assert [path.name for path in ground.home.iterdir() if path.name.startswith(".store")] == []
    assert outcomes == sorted(outcomes, key=["none", "not sure", "all"].index)
    assert 1 <= outcomes.count("not sure") <= 2
    assert outcomes.count("all") > 5


def test_no_room(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore_spark.write.fs.disk.Tree.free_bytes", lambda _: 100)
    before = {k: v for k, v in writing.files(ground.root, "**/*").items() if "staging" not in k}
    assert "the disk is too full: expected at least" in str(attempt(ground, "append", WRITERS[0]))
    assert {k: v for k, v in writing.files(ground.root, "**/*").items() if "staging" not in k} == before


def test_no_right_to_write(ground: Ground) -> None:
    """Known before the messages count."""
    if not IS_ROOT:
        ground.root.joinpath("index").chmod(0o555)
    else:
        os.chown(ground.root / "consumequeue" / "TopicA" / "0", 0, 0)
    before = messages(ground.root)
    told = attempt(ground, "append", "owner")
    assert "permission denied" in str(told)
    assert messages(ground.root) == before
    assert (ground.root / "checkpoint").exists()
    assert not (ground.root / "abort").exists()


# ---- the code


@pytest.mark.slow
def test_only_three_modules_change_files() -> None:
    """disk.py, new_file.py and calls.py have every call that changes something in a store. A command line writes where
    its user says."""
    import ast

    package = Path(rmqstore_spark.__file__).parent
    changing = {
        *("rename", "renames", "replace", "link", "symlink", "unlink", "remove", "removedirs", "rmdir", "mkdir"),
        *("makedirs", "mknod", "mkfifo", "truncate", "ftruncate", "chmod", "fchmod", "lchmod", "chown", "fchown"),
        *("lchown", "utime", "write", "pwrite", "pwritev", "writev", "sendfile", "copy_file_range", "splice", "fsync"),
        *("fdatasync", "setxattr", "removexattr", "open", "posix_fallocate"),
    }
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = str(path.relative_to(package))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                found |= {(name, node.attr)} if node.attr in changing else set()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                found.add((name, "open()"))
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                found |= {(name, m) for m in modules if m.split(".")[0] in ("shutil", "tempfile", "pathlib", "ctypes")}
            if isinstance(node, ast.Attribute) and node.attr in ("write_bytes", "write_text", "touch"):
                found.add((name, node.attr))
    writing = {f"write/fs/{name}.py" for name in ("disk", "walk", "remove_tree", "new_file", "calls")}
    assert {entry for entry in found if entry[0] not in writing} == {
        ("store/io/files.py", "open"),
        ("cli/main.py", "open()"),
        ("cli/streams.py", "open"),  # the null device, in the place of a stream that is closed
        ("store/format/bodies.py", "ctypes"),  # the system's libzstd, which takes bytes and gives bytes
        ("query/expressions.py", "ctypes"),  # reads the metadata of an Arrow schema
        ("temporary.py", "tempfile"),  # what waits to be read again or sorted, in files without a name
        ("cores.py", "open()"),  # of what the system says of a container
        ("cli/incoming.py", "open()"),  # of the file that is imported; Parquet from a pipe goes through another one
        ("cli/incoming.py", "tempfile"),
        ("cli/parameters.py", "open()"),  # of a file that an option names
        *(("cli/output_file.py", call) for call in ("open", "fchmod", "replace", "unlink")),
        *(("cli/partitioned.py", call) for call in ("rename", "shutil")),  # a new directory beside no store
    }
    assert {name for path, name in found if path in writing} >= {"rename", "link", "unlink", "open"}
    # The one that reads opens nothing to be written to.
    assert "O_RDWR" not in (package / "store" / "io" / "files.py").read_text()
    assert "O_CREAT" not in (package / "store" / "io" / "files.py").read_text()
