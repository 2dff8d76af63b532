"""The options that select rows: what each text means, what all say together, and what is refused with which words."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from rmqstore_spark.errors import OptionError, quoted
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.query.selection import ALL, EVERYTHING, Numbers, Selection, Texts

NOON = 1_714_996_800_000  # 2024-05-06T12:00:00Z by `date -u -d @1714996800`


def selection(**options: str) -> Selection:
    return parse_options({"path": "/store", **options}).selection


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as error:
        selection(**options)
    text = str(error.value)
    assert len(text.splitlines()) == 1
    return text


def test_defaults_select_everything() -> None:
    options = parse_options({"path": "/store"})
    assert options.selection == EVERYTHING
    assert options.pushdown == "auto"
    assert selection(tags="*", startingOffsets="earliest", endingOffsets="latest").is_everything


def test_options_combine() -> None:
    assert selection(
        subscribe="A",
        tags="x",
        key="k",
        msgId="m",
        startingTimestamp="5",
        endingTimestamp="9",
        startingOffsets='{"A": {"0": 3}}',
    ) == Selection(
        topic=Texts(frozenset("A")),
        tags=frozenset("x"),
        words=frozenset("k"),
        ids=frozenset("m"),
        store_timestamp=Numbers(5, 8),
        offsets={("A", 0): Numbers(least=3)},
    )


# ---- topics and queues


@pytest.mark.parametrize(
    ("text", "topics"), [("A", {"A"}), (" A , %RETRY%g,B ", {"A", "%RETRY%g", "B"}), ("A,,A,", {"A"})]
)
def test_subscribe(text: str, topics: set[str]) -> None:
    assert selection(subscribe=text) == Selection(topic=Texts(frozenset(topics)))


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_subscribe_nothing(text: str) -> None:
    assert refusal(subscribe=text) == f"option 'subscribe': expected comma-separated topics, found {text!r}"


LISTS: tuple[Any, ...] = (["A", "B"], ["A"], ("A", "B"), ("A",), {"A"}, ["it's", 'a "b"'], [], (), {})


@pytest.mark.parametrize("given", LISTS, ids=str)
def test_a_list_is_refused(given: object) -> None:
    text = str(given)  # what Spark makes of it
    assert refusal(subscribe=text) == (
        f"option 'subscribe': expected comma-separated topics (one,two), not a list, found {text!r}"
    )
    for option in ("columns", "storePathCommitLog"):
        assert refusal(**{option: text}) == (
            f"option {option!r}: expected comma-separated names (one,two), not a list, found {text!r}"
        )
    assert "not a list" in refusal(subscribe='["A","B"]')


@pytest.mark.parametrize("text", ["[A]", "[A", "['A'", "'A','B'", "(A)", "{A}", "A,['B']"])
def test_what_could_be_a_name_is_none(text: str) -> None:
    assert selection(subscribe=text).topic == Texts(frozenset(text.split(",")))


def test_subscribe_pattern_matches_whole_names() -> None:
    topic = selection(subscribePattern="Topic.|%RETRY%.*").topic
    assert [name in topic for name in ("TopicA", "%RETRY%", "TopicAB", "xTopicA", "topicA", "TopicA\n")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "(", "*", "a{1001}", "[a-z&&[^b]]", "[[a]]", "(" * 10_000, "a)(b", "a)|(b", "[", "\\"),
        *("a(\n", r"a\Q)", r"a|\Q", "(?i", "(?x)a #"),
    ],
)
def test_bad_pattern(text: str) -> None:
    message = refusal(subscribePattern=text)
    assert message.startswith("option 'subscribePattern': expected a regular expression")
    assert message.endswith(f"found {quoted(text)}")


@pytest.mark.parametrize("name", ["subscribe", "subscribePattern", "tags", "key", "msgId", "columns"])
def test_half_a_character(name: str) -> None:
    """What Python makes of an argument that is not UTF-8, too."""
    assert refusal(**{name: "\ud800"}) == f"option {name!r}: expected text in UTF-8, found '\\ud800'"


@pytest.mark.parametrize("text", ["TagA &&", "TagA && TagB", "&&"])
def test_tags_know_no_and(text: str) -> None:
    assert refusal(tags=text).endswith(f"as a message has one tag and there is no &&, found {text!r}")


def test_bad_pattern_says_why() -> None:
    assert "as RE2 reads it (missing ): a(b), found 'a(b'" in refusal(subscribePattern="a(b")
    assert "(unexpected ): a)(b), found" in refusal(subscribePattern="a)(b")
    assert r"(\Q without \E), found" in refusal(subscribePattern=r"a\Q)")
    assert "(missing ): a( b), found" in refusal(subscribePattern="a(\nb")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(?=a)b", "look-ahead"),
        ("a(?!b).*", "negative look-ahead"),
        ("(?P<n>a)(?<=a)", "look-behind"),
        ("(?<!a)b", "negative look-behind"),
        (r"(a)\1", "back references"),
        ("(?P<n>a)(?P=n)", "back references"),
        (r"(?<n>a)\k<n>", "back references"),
        (r"(a)\g{1}", "back references"),
        ("(?>a)", "atomic groups"),
        ("a++", "possessive quantifiers"),
        ("a*+", "possessive quantifiers"),
        ("a?+", "possessive quantifiers"),
        ("a{1,2}+", "possessive quantifiers"),
        ("(a)?(?(1)b|c)", "conditionals"),
        ("[a-z&&[^b]]", "set intersection"),  # Java's
        ("[[ab][cd]]", "nested sets"),
    ],
)
def test_what_only_other_engines_have_is_named(text: str, name: str) -> None:
    assert refusal(subscribePattern=text) == (
        f"option 'subscribePattern': expected a regular expression as RE2 reads it (RE2 has no {name}), found {text!r}"
    )


def test_assign() -> None:
    wanted = selection(assign='{"A": [0, 2, 0], "B": [2147483647], "C": []}')
    assert wanted == Selection(
        assigned={"A": frozenset([0, 2]), "B": frozenset([2147483647]), "C": frozenset()},
    )
    assert [wanted.queue("A", n) for n in range(3)] == [ALL, None, ALL]
    assert wanted.queue("D", 0) is None
    assert selection(assign="{}").is_nothing


@pytest.mark.parametrize(
    "text",
    [
        *("", "A", "[]", "null", '"A"', '{"A": 0}', '{"A": {"0": 1}}', '{"A": ["0"]}', '{"A": [true]}', '{"A": [0.0]}'),
        *('{"A": [-1]}', '{"A": [2147483648]}', '{"A": [null]}', '{"A": [0]', "{A: [0]}", "[" * 100_000),
    ],
)
def test_bad_assign(text: str) -> None:
    message = refusal(assign=text)
    assert message.startswith("option 'assign': expected JSON such as {\"topic\": [0, 1]}")
    assert message.endswith(f"found {quoted(text)}")


def test_bad_assign_names_the_topic() -> None:
    assert ": a list of queueIds for topic 'B', found" in refusal(assign='{"A": [0], "B": [1.5]}')
    assert ", each name once, found" in refusal(assign='{"A": [0], "A": [1]}')


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"subscribe": "A", "assign": '{"A": [0]}'}, "'subscribe' and 'assign'"),
        ({"subscribe": "A", "subscribePattern": "A"}, "'subscribe' and 'subscribePattern'"),
        ({"subscribePattern": "A", "assign": "{}"}, "'subscribePattern' and 'assign'"),
        (
            {"subscribe": "A", "subscribePattern": "A", "assign": "{}"},
            "'subscribe' and 'subscribePattern' and 'assign'",
        ),
    ],
)
def test_at_most_one_of_three(options: dict[str, str], names: str) -> None:
    assert refusal(**options) == f"options {names} are given together; give one of them"


# ---- offsets


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("17", "20", Numbers(17, 19)),
        ("-2", "20", Numbers(most=19)),
        ("17", "-1", Numbers(least=17)),
        ("-2", "-1", ALL),
        ("0", "1", Numbers(0, 0)),
        ("17", "17", Numbers(17, 16)),
        ("0", "0", Numbers(0, -1)),
        ("9223372036854775807", "9223372036854775807", Numbers((1 << 63) - 1, (1 << 63) - 2)),
    ],
)
def test_offsets(start: str, end: str, wanted: Numbers) -> None:
    found = selection(startingOffsets=f'{{"A": {{"0": {start}}}}}', endingOffsets=f'{{"A": {{"0": {end}}}}}')
    assert found == Selection(offsets={("A", 0): wanted})
    assert wanted.is_empty == (start == end)
    assert found.queue("A", 0) == (None if wanted.is_empty else wanted)


def test_offsets_of_one_side_and_of_queues_not_named() -> None:
    found = selection(startingOffsets='{"A": {"0": 1, "7": 2}}', endingOffsets='{"B": {"10": 3}, "A": {"7": 5}}')
    assert found.offsets == {
        ("A", 0): Numbers(least=1),
        ("A", 7): Numbers(2, 4),
        ("B", 10): Numbers(most=2),
    }
    assert found.queue("A", 1) == found.queue("C", 0) == ALL
    assert selection(startingOffsets=" Earliest ", endingOffsets="LATEST") == EVERYTHING
    assert selection(startingOffsets="{}", endingOffsets='{"A": {}}') == EVERYTHING


BAD_OFFSETS = [
    *("", "A", "0", "-2", "[]", "null", '"earliest"', '{"A": 5}', '{"A": [5]}', '{"A": "earliest"}', '{"A": {"0": 1}'),
    *('{"A": {"0": "5"}}', '{"A": {"0": 5.0}}', '{"A": {"0": 5e0}}', '{"A": {"0": true}}', '{"A": {"0": null}}'),
    *('{"A": {"0": -3}}', '{"A": {"0": 9223372036854775808}}', '{"A": {"0": NaN}}'),
    *('{"A": {"": 1}}', '{"A": {"x": 1}}', '{"A": {"-1": 1}}', '{"A": {"00": 1}}', '{"A": {" 0": 1}}'),
    *('{"A": {"²": 1}}', '{"A": {"2147483648": 1}}', '{"A": {"0": 1, "0": 2}}', '{"A": {}, "A": {}}'),
]


@pytest.mark.parametrize("text", [*BAD_OFFSETS, "latest", "LATEST", '{"A": {"0": -1}}'])
def test_bad_start(text: str) -> None:
    message = refusal(startingOffsets=text)
    named = "earliest, group:NAME, in a stream also latest, or JSON"
    assert message.startswith(f'option \'startingOffsets\': expected {named} such as {{"topic": {{"0": 17}}}}')
    assert message.endswith(f"found {quoted(text)}")


@pytest.mark.parametrize("text", [*BAD_OFFSETS, "earliest", '{"A": {"0": -2}}'])
def test_bad_end(text: str) -> None:
    message = refusal(endingOffsets=text)
    assert message.startswith('option \'endingOffsets\': expected latest or JSON such as {"topic": {"0": 17}}')
    assert message.endswith(f"found {quoted(text)}")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"A": {"0": 1, "3": -1}}', ": for queue 3 of topic 'A' an offset, or -2 (earliest), found"),
        ('{"A": {"0": 1}, "B": {"x": 1}}', ": a queueId in the place of 'x' in topic 'B', found"),
        ('{"A": {"0": 1}, "B": 7}', ": for topic 'B' an object such as {\"0\": 17}, found"),
        ('{"A": {"0": 1, "0": 2}}', ", each name once, found"),
    ],
)
def test_bad_offsets_say_where(text: str, part: str) -> None:
    assert part in refusal(startingOffsets=text)


def test_start_behind_the_end() -> None:
    assert refusal(startingOffsets='{"A": {"0": 1, "3": 18}}', endingOffsets='{"A": {"0": 1, "3": 17}}') == (
        "options 'startingOffsets' and 'endingOffsets': queue 3 of topic 'A' starts at 18, after its end 17"
    )


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_what_is_left_out(option: str) -> None:
    offsets = {option: '{"TopicB": {"1": 5}}'}
    start = f"option {option!r} names topic 'TopicB', which option "
    assert refusal(subscribe="TopicA,X", **offsets) == f"{start}'subscribe' leaves out. Did you mean 'TopicA'?"
    assert refusal(assign='{"TopicC": [1]}', **offsets) == f"{start}'assign' leaves out. Did you mean 'TopicC'?"
    assert refusal(subscribePattern="Topic[^B]", **offsets) == f"{start}'subscribePattern' leaves out."
    assert refusal(assign="{}", **offsets) == f"{start}'assign' leaves out."
    assert refusal(assign='{"TopicB": [0, 2]}', **offsets) == (
        f"option {option!r} names queue 1 of topic 'TopicB', which option 'assign' leaves out"
    )
    for wanted in ({"subscribe": "TopicB"}, {"subscribePattern": "Topic."}, {"assign": '{"TopicB": [1]}'}):
        assert list(selection(**wanted, **offsets).offsets) == [("TopicB", 1)]


# ---- time


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        (str(NOON), NOON),
        ("-5", -5),
        (" 7 ", 7),
        ("9223372036854775807", (1 << 63) - 1),
        ("2024", 2024),
        ("20240506", 20240506),
        ("1970-01-01", 0),
        ("2024-05-06", NOON - 43_200_000),
        ("2024-05-06T12:00", NOON),
        ("2024-05-06 12:00:00", NOON),
        ("2024-05-06T12:00:00Z", NOON),
        ("2024-05-06T20:00:00+08:00", NOON),
        ("2024-05-06T20:00+0800", NOON),
        ("2024-05-06T07:30:00.000-04:30", NOON),
        ("2024-05-06T04:00:00-08", NOON),
        ("2024-05-06T12:00:00.1", NOON + 100),
        ("2024-05-06T12:00:00,123Z", NOON + 123),
        ("2024-05-06T12:00:00.123000000", NOON + 123),
        # Between two milliseconds: the first that is not before it.
        ("2024-05-06T12:00:00.0005", NOON + 1),
        ("2024-05-06T12:00:00.123000001Z", NOON + 124),
        ("2024-05-06T12:00:00.000000000000000000001", NOON + 1),
        ("2024-05-06T11:59:59.9999", NOON),
        ("1969-12-31T23:59:59.9985", -1),
        ("1969-12-31T23:59:59.9991", 0),
        ("2024-05-06T12:00 UTC", NOON),
        ("2024-05-06T20:00 Asia/Shanghai", NOON),
        ("2024-05-06T08:00:00.5 America/New_York", NOON + 500),
        ("2024-05-06 Asia/Shanghai", NOON - 20 * 3_600_000),
        ("0001-01-01T00:00:00+14:00", -62_135_596_800_000 - 14 * 3_600_000),
        ("9999-12-31T23:59:59.999-12:00", 253_402_300_799_999 + 12 * 3_600_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert selection(startingTimestamp=text).store_timestamp == Numbers(least=milliseconds)
    assert selection(endingTimestamp=text).store_timestamp == Numbers(most=milliseconds - 1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.5", "+5", "1e3", "0x10", "-", "--1", "²", "5 6", "9223372036854775808", "9" * 5000),
        *("2024-05", "2024-5-6", "2024-13-01", "2024-02-30", "0000-01-01", "2024-05-06Z", "2024-05-06T", "2024-W19-1"),
        *("2024-05-06T24:01", "2024-05-06T12", "2024-05-06T12:00.5", "2024-05-06T12:00:00.", "2024-05-06x12:00"),
        *(
            "2024-05-06T12:00 Nowhere",
            "2024-05-06T12:00+01:00 UTC",
            "2024-05-06 ../UTC",
            "-1y",
            "-h",
            "1h",
            "- 1h",
            "tomorrow",
            "today  UTC",
            "2024-05-06T12:00+24:00",
            "2024-05-06T12:00:00[UTC]",
            "06.05.2024",
            "\uff12\uff10\uff12\uff14",
        ),
        "2024-05-06T12:00:00." + "1" * 5000,
    ],
)
def test_bad_times(text: str) -> None:
    for option in ("startingTimestamp", "endingTimestamp"):
        message = refusal(**{option: text})
        assert message.startswith(f"option {option!r}: expected milliseconds of the epoch, or ISO-8601 such as 2024-")
        assert message.endswith(f"found {quoted(text)}")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("now", NOON),
        ("-0s", NOON),
        ("-90s", NOON - 90_000),
        ("-15m", NOON - 900_000),
        ("-1h", NOON - 3_600_000),
        (" -2d ", NOON - 2 * 86_400_000),
        ("-1w", NOON - 7 * 86_400_000),
        ("today", NOON - 12 * 3_600_000),
        ("Yesterday", NOON - 36 * 3_600_000),
        ("today Asia/Tokyo", NOON - 21 * 3_600_000),
        ("today Pacific/Auckland", NOON),  # it is midnight there
        ("yesterday America/New_York", NOON - 32 * 3_600_000),
    ],
)
def test_times_by_the_clock(text: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore_spark.query.instants.milliseconds_now", lambda: NOON)
    assert selection(startingTimestamp=text).store_timestamp == Numbers(least=milliseconds)
    assert selection(endingTimestamp=text).store_timestamp == Numbers(most=milliseconds - 1)


@pytest.mark.parametrize(
    ("zone", "text", "milliseconds"),
    [
        ("Asia/Tokyo", "today local", NOON - 21 * 3_600_000),
        ("Pacific/Auckland", "yesterday Local", NOON - 24 * 3_600_000),
        ("Asia/Shanghai", "2024-05-06T20:00 local", NOON),
        ("America/New_York", "2024-05-06 local", NOON - 8 * 3_600_000),
        ("America/New_York", "2024-01-06 local", NOON - (121 * 24 + 7) * 3_600_000),  # in winter
        ("UTC", "2024-05-06 local", NOON - 12 * 3_600_000),
    ],
)
def test_times_of_this_machine(zone: str, text: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore_spark.query.instants.milliseconds_now", lambda: NOON)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert selection(startingTimestamp=text).store_timestamp == Numbers(least=milliseconds)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_that_does_not_exist_says_why() -> None:
    assert "(month must be in 1..12), found '2024-13-01'" in refusal(startingTimestamp="2024-13-01")


def test_start_later_than_end() -> None:
    assert refusal(startingTimestamp="2024-05-06", endingTimestamp="1714953599999") == (
        "option 'startingTimestamp' (2024-05-06) is later than 'endingTimestamp' (1714953599999)"
    )
    less_than_a_millisecond = {
        "startingTimestamp": "2024-05-06T00:00:00.0005",
        "endingTimestamp": "2024-05-06T00:00:00.0004",
    }
    assert "is later than" in refusal(**less_than_a_millisecond)


def test_an_empty_time_range_is_legal() -> None:
    assert selection(startingTimestamp="5", endingTimestamp="6").store_timestamp == Numbers(5, 5)
    equal = selection(startingTimestamp="2024-05-06T12:00", endingTimestamp=str(NOON))
    assert equal.store_timestamp == Numbers(NOON, NOON - 1)
    assert equal.is_nothing


# ---- tags, keys, ids


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("*", None),
        ("", None),
        ("TagA", {"TagA"}),
        (" TagA ", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||TagA", {"TagA", "TagB"}),
        ("||TagA|| ||", {"TagA"}),
        ("Tag A", {"Tag A"}),
        ("\t\x01A\r\n", {"A"}),  # String.trim() takes all up to the space,
        ("\u00a0A", {"\u00a0A"}),  # and nothing else
        # FilterAPI knows the star only alone.
        (" * ", {"*"}),
        ("TagA || *", {"TagA", "*"}),
    ],
)
def test_tags(text: str, tags: set[str] | None) -> None:
    assert selection(tags=text) == Selection(tags=None if tags is None else frozenset(tags))


@pytest.mark.parametrize("text", ["||", " || ", "||||", " ", "\t"])
def test_tags_of_separators_only(text: str) -> None:
    assert refusal(tags=text) == f"option 'tags': expected *, TagA or TagA || TagB, found {text!r}"


@pytest.mark.parametrize("text", ["k", " k ", "a b", "中文"])
def test_key_and_id_are_taken_as_they_are(text: str) -> None:
    assert selection(key=text) == Selection(words=frozenset([text]))
    assert selection(msgId=text) == Selection(ids=frozenset([text]))


@pytest.mark.parametrize("text", ["7f00000100002a9f00000000000000ff", "0" * 55 + "a"])
def test_offset_msg_id(text: str) -> None:
    assert selection(offsetMsgId=text) == Selection(offset_msg_id=frozenset([text.upper()]))


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F00000100002A9F00000000000000FF "])
def test_no_offset_msg_id(text: str) -> None:
    expected = "32 hex digits, or 56 with an IPv6 host"
    assert refusal(offsetMsgId=text) == f"option 'offsetMsgId': expected {expected}, found {text!r}"


@pytest.mark.parametrize("option", ["key", "msgId"])
def test_empty_key_and_id(option: str) -> None:
    assert refusal(**{option: ""}) == f"option {option!r}: expected a text that is not empty, found ''"


# ---- pushdown


@pytest.mark.parametrize("text", ["auto", "on", "off", "ON"])
def test_pushdown(text: str) -> None:
    assert parse_options({"path": "/store", "pushdown": text}).pushdown == text.lower()


@pytest.mark.parametrize("text", ["", "true", "yes"])
def test_bad_pushdown(text: str) -> None:
    assert refusal(pushdown=text) == f"option 'pushdown': expected auto or on or off, found {text!r}"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("subscribes", "subscribe"),
        ("startingTimestmp", "startingTimestamp"),
        ("tag", "tags"),
        ("pushDowns", "pushdown"),
    ],
)
def test_misspelled_options(wrong: str, right: str) -> None:
    options: dict[str, Any] = {wrong: "x"}
    assert re.match(rf"unknown option '{wrong}'\. Did you mean '{right}'\?", refusal(**options))
