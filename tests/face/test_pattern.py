"""A pattern of topics matches what its documentation says, and no topic makes it slow."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from oracle import stores
from support.reading import read

from rmqstore_spark.query import pattern as module
from rmqstore_spark.query.pattern import Pattern, compiled
from rmqstore_spark.query.selection import Texts

# With Python's re the first of them takes longer than the universe is old.
CATASTROPHES = ("(a+)+$", "(a|a)*b", "(a*)*b", "(.*a){20}b", "(a|aa)+$", "(?:a?){50}b")


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("A|B", ["A", "B"], ["AB", "xA", "Bx"]),
        ("(?i)topic.", ["TOPICa", "topicB"], ["topic"]),
        ("(?i:t)opic", ["topic", "Topic"], ["TOPIC"]),
        ("(?m)^A$", ["A"], ["A\nA", "A\n"]),
        ("A$|^B", ["A", "B"], ["A\n"]),
        (r"\QA)|(B\E", ["A)|(B"], ["A)", "(B"]),
        ("[[:alpha:]]+", ["abc"], ["a1"]),
        (r"[\[]\[&&", ["[[&&"], ["["]),
        ("(?P<n>A)(?P<m>B)", ["AB"], ["A"]),
        ("中.", ["中文"], ["中"]),
        ("a.b", ["a\udcffb", "a\N{REPLACEMENT CHARACTER}b"], ["a\udcff\udcffb"]),  # a directory's name in no UTF-8
        ("a*", ["", "a", "a" * 255, "a" * 256, "a" * 30_000], ["b" * 255, "b" * 256, "a" * 30_000 + "b"]),
    ],
)
def test_whole_texts_match(text: str, matching: list[str], other: list[str]) -> None:
    one_by_one, at_once = compiled(text), compiled(text)
    at_once.learn(matching + other)
    for pattern in (one_by_one, one_by_one, at_once):
        assert [topic for topic in matching + other if pattern.matches(topic)] == matching


def test_a_pattern_is_its_text() -> None:
    pattern = compiled("Topic.")
    pattern.learn([f"Topic{i}" for i in range(1000)])
    data = pickle.dumps(Texts(patterns=(pattern,)))
    assert len(data) < 500  # what is known already stays at home
    copy = pickle.loads(data).patterns[0]
    assert (copy, hash(copy)) == (pattern, hash(pattern))
    assert copy != compiled("Topic")
    assert copy.matches("Topic1")
    assert not copy.matches("Topic10")


def test_it_forgets_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 10)
    pattern = compiled("a.*")
    for number in range(100):
        assert pattern.matches(f"a{number}")
        assert not pattern.matches(f"b{number}")
        pattern.learn([f"a{i}" for i in range(number)])
        assert len(pattern._known) <= 10


@pytest.mark.parametrize("text", CATASTROPHES)
@pytest.mark.parametrize("length", [60, 255, 30_000])
def test_no_topic_makes_it_slow(text: str, length: int) -> None:
    """What is slow here takes years."""
    start = time.process_time()
    assert compiled(text).matches("a" * length) == text.endswith("$")
    assert not compiled(text).matches("a" * length + "!")
    assert time.process_time() - start < 30


def test_many_topics_are_matched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time that grows with them, and not with their square."""
    ask = Pattern._ask

    def seconds(count: int) -> float:
        pattern = compiled("Topic.*7")
        topics = [f"Topic{i}" for i in range(count)]
        start = time.process_time()
        monkeypatch.setattr(Pattern, "_ask", ask)
        pattern.learn(topics)
        monkeypatch.setattr(Pattern, "_ask", None)  # no further call of RE2
        assert sum(topic in Texts(patterns=(pattern,)) for topic in topics) == count // 10
        return time.process_time() - start

    few, many = (min(seconds(count) for _ in range(5)) for count in (2000, 20_000))
    assert many < 40 * few


@pytest.mark.parametrize("text", CATASTROPHES)
@pytest.mark.parametrize("queues", [True, False])
def test_a_hostile_store_is_read_at_once(text: str, queues: bool, tmp_path: Path) -> None:
    topics = ["a" * 60, "a" * 59 + "!", "a" * 120, "a" * 44 + "b"]
    topics += [] if queues else ["a" * 30_000, "a" * 30_000 + "!"]  # no directory could be named so
    store = stores.StoreBuilder(tmp_path, 1 << 20, consume_queue=queues, index=True)
    for topic in topics:
        store.append(topic, keys="k", version=2)
    store.close()
    if not queues:
        store.drop_queues()
    start = time.process_time()
    found = read(tmp_path, subscribePattern=text)
    assert [row["topic"] for row in read(tmp_path, subscribePattern=text, key="k")] == [row["topic"] for row in found]
    assert time.process_time() - start < 60
    last = "a" if text[-1] == "$" else "b"
    assert {row["topic"] for row in found} == {topic for topic in topics if topic[-1] == last}
