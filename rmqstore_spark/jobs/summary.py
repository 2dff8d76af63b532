"""A store on one screen: its size, its time span, the largest topics, and the groups that lag.

`rmqstore show` looks closely. A Store's repr has to come at once: it looks at the ends of queues in at most MOST_TOPICS
topics, not at messages within them, and not at how far groups are.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import DamagedStoreError, RmqStoreError, counted
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.jobs.pending import Pending, pending
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.store.elsewhere import Elsewhere, elsewhere
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.message_headers import headers_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import Table, group_entries
from rmqstore_spark.store.structures.many_headers import NO_TIME, Place
from rmqstore_spark.tables.check.config import check_config_files
from rmqstore_spark.tables.check.layout import check_layout
from rmqstore_spark.tables.check.problems import PROBLEMS, Finding
from rmqstore_spark.tables.offsets import Progress, consumed
from rmqstore_spark.tables.queues import QueueFacts, queue_facts
from rmqstore_spark.tables.topics import kind_of
from rmqstore_spark.tables.usage import usage_of

# How much of the log is sampled, so that a summary takes only seconds on a disk that has to seek:
_TOPICS_SAMPLED = 20  # the topics with most messages
_QUEUES_SAMPLED = 2  # the largest queues of a topic
_SAMPLES = 16  # messages of a queue
IN_SUMMARIES = {"messages", "topics", "queues", "groups", "offsets"}  # the tables that a summary shows in short
# Sizes are exact where no more has to be read: that takes less than 0.3 s.
_MOST_QUEUES, _MOST_UNITS, _MOST_BYTES = 1000, 4_000_000, 64 * 1024 * 1024
MOST_TOPICS = 300  # in a repr: to look at the queues of more takes longer than a glance
GROUPS_TIMED = 10  # groups of which a summary tells how far behind they are in time
RATES = 24  # parts of the store's time span, with a rate for each


@dataclass(frozen=True)
class TopicSummary:
    """A topic with messages.

    Attributes:
        queues: the number of queues with messages.
        last_time: the store time of the last message (microseconds); None if no queue tells.
        nbytes: in the log: exact, or estimated from some messages; None if the topic was not sampled.
        is_exact: whether nbytes is exact.
        rates: estimated messages in each of RATES equal parts of the store's time span; empty if not sampled.
    """

    topic: str
    kind: str
    queues: int
    messages: int
    last_time: int | None
    nbytes: float | None
    is_exact: bool
    rates: list[float]


@dataclass(frozen=True)
class GroupSummary:
    """A consumer group's progress in all its queues.

    Attributes:
        lag: messages.
        lag_millis: the longest lag of a queue, in ms; None if no queue tells, or if GROUPS_TIMED others lag more.
    """

    group: str
    topics: list[str]
    lag: int
    lag_millis: int | None


@dataclass(frozen=True)
class Summary:
    """A store. Times are microseconds since 1970, None if the store has no message.

    Large because each field is a line of the screen.

    Attributes:
        nbytes: the size of the log: of all messages, and what fills the ends of segments.
        has_abort: whether a broker runs on the store, or did not stop cleanly.
        is_locked: whether a broker runs on the store.
        known_topics, known_groups: the number of those that the configuration, a queue or a group's offset names.
        messages: the number of messages in queues.
        topics: the topics with messages, the one with most messages first; empty if queues were not looked at.
        empty_topics: the number of other topics in the configuration.
        groups: the group that lags most first; empty in a repr.
        pending: what waits in the store; empty in a repr.
        unknown: the places that the tables of messages, topics, queues, groups and offsets do not know.
        notable: what table `check` finds without reading the log; empty in a repr.
        damage: the damage of the log that was met on the way, in words; there may be more.
    """

    root: str
    nbytes: int
    segments: int
    has_abort: bool
    is_locked: bool
    known_topics: int
    known_groups: int
    first_time: int | None
    last_time: int | None
    messages: int
    queues: int
    topics: list[TopicSummary]
    empty_topics: int
    groups: list[GroupSummary]
    pending: list[Pending]
    unknown: list[Elsewhere]
    notable: list[Finding]
    damage: list[str]

    @property
    def has_broken_config(self) -> bool:
        """Is there a file of config/ that cannot be read, so that topics or groups may be missing?"""
        return any(each.problem == "brokenConfig" for each in self.notable)


def summarize(store: Snapshot, is_close: bool = True) -> Summary:
    """Summarize a store, with a few requests for each queue.

    Args:
        is_close: whether messages within queues are looked at for sizes, rates and lags, and all that is not read is
            named. Else it is for a repr: of a store of more than MOST_TOPICS topics with queues, or of one without
            queues in files, queues are not looked at either.
    """
    with listening(is_silent=True) as listener, collector_paused():  # there may be very many queues and groups
        summary = _summary(store, is_close)
    waiting = _pending(store, summary.topics) if is_close else []
    return replace(summary, damage=sorted(listener.texts), pending=waiting)


def _summary(store: Snapshot, is_close: bool) -> Summary:
    entries = store.topic_entries
    every = queue_facts(store) if is_close or _are_quick(store) else None
    # Light queues' messages have a queue of their topic as well.
    facts = None if every is None else replace(every.without_light(), ahead=every.ahead)
    first, last = _span(store, facts)
    topics: list[TopicSummary] = []
    lagging: list[GroupSummary] = []
    if every is not None and facts is not None:
        # Where requests take long, what groups have consumed is looked up beside the messages of topics.
        groups_of = functools.partial(_groups, store, every)
        coming = store.files.schedule.in_background(groups_of) if is_close else None
        topics = list(_topics(store, facts, entries, is_close, (first or 0, last or 0)))
        if is_close:
            lagging = groups_of() if coming is None else coming.result()
    consuming = (group for group, _ in store.consumer_offsets.names.of_groups())
    groups = {*group_entries(store.root, store.files), *consuming}
    return Summary(
        root=store.root,
        nbytes=store.log.size,
        segments=len(store.log.extents),
        has_abort=store.layout.abort,
        is_locked=store.layout.abort and store.files.is_locked(store.layout.lock),
        known_topics=len(store.known_topics),
        known_groups=len(groups),
        first_time=first,
        last_time=last,
        messages=0 if facts is None else int(facts.counts.sum()),
        queues=0 if facts is None else len(facts),
        topics=topics,
        empty_topics=len(entries.keys() - {topic.topic for topic in topics}),
        groups=lagging,
        pending=[],
        unknown=[place for place in elsewhere(store) if place.tables & IN_SUMMARIES] if is_close else [],
        notable=list(_notable(store, facts)) if is_close and facts is not None else [],
        damage=[],
    )


def _pending(store: Snapshot, topics: list[TopicSummary]) -> list[Pending]:
    """Sizes are exact where queues tell the topic of each message."""
    messages = {topic.topic: topic.messages for topic in topics}
    return pending(store, messages, is_quick=all(topic.is_exact for topic in topics))


def _notable(store: Snapshot, facts: QueueFacts) -> Iterator[Finding]:
    """Errors and warnings, and a broker that runs."""
    for each in facts.ahead:
        yield Finding(
            "queueAheadOfLog",
            topic=each.topic,
            queue_id=each.queue_id,
            queue_offset=each.queue_offset,
            expected=f"none after the log's end at {store.end}",
            found=counted(each.messages, "message"),
            count=each.messages,
        )
    for finding in (*check_layout(store), *check_config_files(store)):
        if PROBLEMS[finding.problem].severity != "info" or finding.problem == "brokerRuns":
            yield finding


def glance(store: Snapshot, commitlogs: list[str] | None, is_close: bool = False) -> Summary | RmqStoreError:
    """What is in a store as it is now; why it cannot be read, if so.

    Args:
        is_close: whether to look as `rmqstore show` does where that takes no longer than a glance.
        commitlogs: the commitlog's directories where they are not <root>/commitlog.
    """
    try:
        return again(lambda: _glance(Snapshot.find(store.root, store.files, commitlogs), is_close))
    except RmqStoreError as why:
        return why


def _glance(store: Snapshot, is_close: bool) -> Summary:
    return summarize(store, is_close and _are_quick(store))


def _are_quick(store: Snapshot) -> bool:
    """Does it take no longer than a glance to look at the queues?"""
    return len(store.queues.topics) <= MOST_TOPICS and store.layout.queues is not None


def _span(store: Snapshot, facts: QueueFacts | None) -> tuple[int | None, int | None]:
    """The first and the last store time in queues; of the log's first and last message where no queue tells."""
    known = np.empty(0, np.int64) if facts is None else facts.times[facts.times != NO_TIME]
    if len(known):
        return int(known.min()), int(known.max())
    extents = store.log.extents
    ends = [store.log.timestamp(at) for at in (extents[0].start, extents[-1].stop)] if extents else []
    times = [time * 1000 for time in ends if time is not None]
    return min(times, default=None), max(times, default=None)


def bytes_of_topics(store: Snapshot, facts: QueueFacts) -> dict[str, int] | None:
    """The exact bytes of each topic's messages, if these can be had in less than about 0.3 s, else None."""
    if store.files.is_slow or len(facts) > _MOST_QUEUES or int(facts.counts.sum()) > _MOST_UNITS:
        return None
    try:
        found = usage_of(store, parse_options({"path": store.root}), ["topic"], _MOST_BYTES)
    except DamagedStoreError:
        return None
    return (
        None if found is None else dict(zip(*(found[0][name].to_pylist() for name in ("topic", "bytes")), strict=True))
    )


def are_bytes_quick(store: Snapshot) -> bool:
    """Are the bytes of topics known in a moment? A store with more topics than queues of which that holds is not looked
    at."""
    if not store.is_whole or len(store.queues.topics) > _MOST_QUEUES:
        return False
    return bytes_of_topics(store, queue_facts(store)) is not None


def _topics(
    store: Snapshot, facts: QueueFacts, entries: Table, is_close: bool, span: tuple[int, int]
) -> Iterator[TopicSummary]:
    """The topics with messages, the one with most messages first."""
    have_messages = facts.counts > 0
    some = facts if have_messages.all() else facts.only(have_messages)
    names, bounds = some.topics
    if not names:
        return
    exact = bytes_of_topics(store, facts) if is_close else None
    counts, last = np.add.reduceat(some.counts, bounds[:-1]), np.maximum.reduceat(some.times[1], bounds[:-1])
    rows = sorted(
        zip(names, bounds[:-1].tolist(), bounds[1:].tolist(), counts.tolist(), last.tolist(), strict=True),
        key=lambda row: (-row[3], row[0]),
    )
    largest = [range(start, stop) for _, start, stop, _, _ in rows[: _TOPICS_SAMPLED if is_close else 0]]
    messages = _sampled(store, some, [row for each in largest for row in _largest(some, each)])
    for at, (topic, start, stop, count, time) in enumerate(rows):
        samples = _Samples(some, largest[at], messages) if at < len(largest) else None
        kind, last_time = kind_of(topic, entries.get(topic)), None if time == NO_TIME else time
        is_exact, rates = exact is not None, [] if samples is None else samples.rates(*span)
        if exact is not None:
            nbytes: float | None = exact.get(topic, 0)
        else:
            nbytes = None if samples is None else samples.nbytes()
        yield TopicSummary(topic, kind, stop - start, count, last_time, nbytes, is_exact, rates)


class _Samples:
    """Some messages of a topic's largest queues, spread evenly along them."""

    def __init__(self, facts: QueueFacts, rows: range, messages: dict[int, list[Header]]) -> None:
        self._all = int((facts.end[rows.start : rows.stop] - facts.least[rows.start : rows.stop]).sum())
        some = _largest(facts, rows)
        self._least = {row: int(facts.least[row]) for row in some}
        self._messages = {row: messages[row] for row in some}

    def nbytes(self) -> float | None:
        """The estimated bytes of the topic's messages."""
        sizes = [header.size for some in self._messages.values() for header in some]
        return sum(sizes) / len(sizes) * self._all if sizes else None

    def rates(self, first: int, last: int) -> list[float]:
        """The estimated messages in each of RATES equal parts of the time between two store times."""
        if not self._messages:
            return []
        edges = np.linspace(first, max(last, first + 1), RATES + 1)
        total: npt.NDArray[np.float64] = np.zeros(RATES)
        for row, some in self._messages.items():
            before = self._least[row] - 1
            known = [(h.store_timestamp, h.queue_offset - before) for h in some if h.store_timestamp is not None]
            if known:
                at, so_far = np.array(known, np.int64).T
                at_edges = np.interp(edges, np.maximum.accumulate(at), so_far, left=0)
                at_edges[0] = 0
                total += np.diff(at_edges)
        sampled = total.sum()
        return [float(rate) for rate in total * (self._all / sampled)] if sampled else []


def _largest(facts: QueueFacts, rows: range) -> list[int]:
    """The rows of a topic's largest queues."""
    some = [row for row in rows if facts.queues[row] is not None]
    return sorted(some, key=lambda row: int(facts.least[row] - facts.end[row]))[:_QUEUES_SAMPLED]


def _sampled(store: Snapshot, facts: QueueFacts, rows: list[int]) -> dict[int, list[Header]]:
    """Some messages of each of these queues, in the order of the queue."""

    def unit_at(place: tuple[int, int]) -> QueueUnit | None:
        queue = queues[place[0]]
        return None if queue is None else queue.unit(place[1])

    queues = {row: facts.queues[row] for row in rows}
    asked = [(row, offset) for row in rows for offset in _spread(int(facts.least[row]), int(facts.end[row]) - 1)]
    units = store.files.schedule.mapped(unit_at, asked)
    headers = headers_of(store, [Place(unit.position, unit.size) for unit in units if unit is not None])
    found: dict[int, list[Header]] = {row: [] for row in rows}
    for (row, _), unit in zip(asked, units, strict=True):
        header = None if unit is None else headers.get(unit.position)
        if header is not None:
            found[row].append(header)
    return found


def _spread(least: int, most: int) -> list[int]:
    return sorted(set(np.linspace(least, most, _SAMPLES).astype(int).tolist()))


def _groups(store: Snapshot, facts: QueueFacts) -> list[GroupSummary]:
    rows = consumed(store)
    progress = Progress(store, rows, facts)
    parts: dict[str, slice] = {}  # of the rows: those of a group are side by side
    topics: dict[str, list[str]] = {}
    for group, names in rows.names.of_groups():
        parts[group] = slice(*rows.bounds[[names.start, names.stop]].tolist())
        topics[group] = rows.names.topics_at(names)
    lags = progress.lags(list(parts.values()))
    groups = [GroupSummary(group, topics[group], lag, None) for group, lag in zip(parts, lags, strict=True)]
    groups.sort(key=lambda each: (-each.lag, each.group))
    worst, others = groups[:GROUPS_TIMED], groups[GROUPS_TIMED:]
    longest = progress.longest([parts[each.group] for each in worst])
    return [*(replace(each, lag_millis=millis) for each, millis in zip(worst, longest, strict=True)), *others]
