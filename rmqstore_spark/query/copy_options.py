"""The options of a copy that are none of a read: where groups go on, what stays behind or changes, and how it is
written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.query.options import COPY_OPTIONS, understand
from rmqstore_spark.query.selection import EVERYTHING, Selection


@dataclass(frozen=True)
class Exclusion:
    """Messages that a copy leaves out.

    Attributes:
        option: the option that names them.
        value: its value, as text.
        selection: selects the messages.
        topic: the topic, where one is left out as a whole: the selection is not limited then, as its messages may wait
            in topics of the broker.
        sought: bytes that each of the messages has.
    """

    option: str
    value: str
    selection: Selection
    sought: bytes
    topic: str | None = None


@dataclass(frozen=True)
class CopyOptions:
    """Parsed options of a copy.

    Attributes:
        has_index: whether the copy gets index files.
        starts: by consumer group, where it goes on, other than in the sources.
        exclusions: the messages that are left out.
        store_host: the storeHost that all messages get, as stored; None: each keeps its own.
    """

    has_index: bool = True
    starts: Mapping[str, Start] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    store_host: bytes | None = None

    @property
    def excluded_topics(self) -> frozenset[str]:
        """The topics that are left out as a whole."""
        return frozenset(each.topic for each in self.exclusions if each.topic is not None)


def split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options that select and read messages, and those of the copy itself, by their exact names."""
    own = {name: text for name, text in given.items() if name in COPY_OPTIONS}
    return {name: text for name, text in given.items() if name not in own}, own


def parse_copy_options(given: Mapping[str, str]) -> CopyOptions:
    """Parse the options of the copy itself.

    Raises:
        OptionError: a wrong value.
    """
    values, _ = understand(given, COPY_OPTIONS)
    return CopyOptions(
        values["messageIndexEnable"], values["groupOffset"] or {}, tuple(_exclusions(values)), values["storeHost"]
    )


def _exclusions(values: Mapping[str, Any]) -> Iterator[Exclusion]:
    for topic in sorted(values["excludeTopic"] or ()):
        yield Exclusion("excludeTopic", topic, EVERYTHING, topic.encode(), topic)
    for key in values["excludeKey"] or ():
        yield Exclusion("excludeKey", key, Selection(words=frozenset([key])), key.encode())
    for id in values["excludeMsgId"] or ():
        yield Exclusion("excludeMsgId", id, Selection(ids=frozenset([id])), id.encode())
    for name, value in values["excludeProperty"] or ():
        selection = Selection(properties=frozenset([(name, value)]))
        yield Exclusion("excludeProperty", f"{name}={value}", selection, value.encode())
