"""What check can find: each problem with how bad it is, where it belongs, and what to do. The only such table."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, Column, as_schema
from rmqstore_spark.errors import one_line

COLUMNS = (
    Column("severity", TEXT, "error, warning or info"),  # something is lost or wrong; it will be, or may be; neither
    Column("area", TEXT, "log, queue, index, config, offsets or layout"),
    Column("problem", TEXT, "its name"),  # of PROBLEMS
    Column("file", TEXT, "the file that it is in"),
    Column("filePosition", LONG, "where in this file"),
    Column("commitLogOffset", LONG, "physical offset of the message"),
    Column("topic", TEXT, "the message's topic"),
    Column("queueId", INT, "the message's queue"),
    Column("queueOffset", LONG, "the message's queue offset"),
    Column("expected", TEXT, "what should be there"),
    Column("found", TEXT, "what is there"),
    Column("advice", TEXT, "what to do"),
    Column("count", LONG, "how many there are in a row, of which this is the first"),
)
SCHEMA = as_schema(COLUMNS)


class Problem(NamedTuple):
    """A kind of finding."""

    severity: str
    area: str
    advice: str


_REBUILD = "call rmqstore_spark.rebuild(store), which makes queues and index anew from the log"
_BROKER_STOPS = "move it out of the store: most brokers do not start with it"

PROBLEMS = {
    # ---- log
    "damagedUnit": Problem(
        "error",
        "log",
        "bring the segment back from a replica or a backup; else make a new store of what is whole (rmqstore salvage): "
        "a broker that recovers over it deletes all that comes after",
    ),
    "unwrittenPages": Problem(
        "error",
        "log",
        "messages are missing here, and later ones follow: it was copied while its broker wrote it, or the machine "
        "failed before all was on disk: copy it again (best as a snapshot of the file system), or bring the segment "
        "back from a replica; else rmqstore salvage: a broker that recovers over it deletes all that comes after",
    ),
    "unwrittenEnd": Problem(
        "warning",
        "log",
        "only a part of the last message is here, and its queue has it: it was copied while its broker wrote it, or "
        "the machine failed before all was on disk: copy it again; else rmqstore salvage makes a store without it, and "
        "a broker that starts drops it",
    ),
    "missingSegment": Problem(
        "error",
        "log",
        "bring the missing segments back (option storePathCommitLog says where others are); else: rmqstore salvage",
    ),
    "wrongFileSize": Problem(
        "error", "layout", "copy the file again from where it came from: most brokers do not start with another size"
    ),
    "expiredMeanwhile": Problem("info", "log", "the broker deleted this segment while it was checked"),
    "longTopic": Problem(
        "info",
        "log",
        "never start a broker before 5.1.0 on this store: it deletes the first such message and all after it",
    ),
    "longRecovery": Problem(
        "info",
        "log",
        "brokers since 5.4.0 make queues and index anew from their last commitLogRecoverMaxNum (10) segments only: if "
        "they are lost, call rmqstore_spark.rebuild(store) or raise that setting before the broker starts",
    ),
    # ---- queue
    "noQueues": Problem("error", "queue", f"consumers get nothing: {_REBUILD}"),
    "missingQueueUnit": Problem("error", "queue", f"consumers never get these messages: {_REBUILD}"),
    "wrongQueueUnit": Problem("error", "queue", f"consumers get another message, or none: {_REBUILD}"),
    "shiftedQueueUnit": Problem(
        "error",
        "queue",
        "the log lacks messages of this queue, and the queue was made anew since; or a message's queueOffset, which no "
        "checksum covers, is damaged: consumers get messages at other queue offsets than the log says, or not at all, "
        "also after a rebuild; rmqstore salvage makes a store where both agree",
    ),
    "extraQueueUnit": Problem(
        "error",
        "queue",
        "the log has no message of this queue there: at the queue's end rmqstore_spark.rebuild(store) drops it; with "
        "messages after it only rmqstore salvage makes a store in which these keep their queue offsets",
    ),
    "queueAheadOfLog": Problem(
        "warning",
        "queue",
        "the log ends before the messages of these units: bring back the log's end if it was lost; else a broker that "
        "starts drops them, and so does rmqstore_spark.rebuild(store)",
    ),
    "repeatedQueueOffset": Problem(
        "error",
        "queue",
        "another message has the same queueOffset, and the queue's unit, so consumers never get this one: read it by "
        "its commitLogOffset and send or append it again; rmqstore salvage makes a store without it",
    ),
    "notDispatched": Problem(
        "info",
        "queue",
        "the last messages are not in their queues yet: a broker that runs puts them there, and so does one that "
        "starts on a store with `abort`, up to the first damage in the log",
    ),
    "aheadOfEnd": Problem(
        "info",
        "queue",
        "the store was written to after its log was looked at or copied, or its broker was killed: a broker that "
        "starts on a copy drops these units",
    ),
    "queueGap": Problem(
        "warning",
        "queue",
        "queue offsets were left out: consumers skip them; a broker that makes the queue anew by itself, or a rebuild, "
        "gives other offsets to what comes after; rmqstore salvage makes a store in which offsets stay",
    ),
    "queueFileGap": Problem("error", "queue", f"files of this queue are missing: {_REBUILD}"),
    "wrongQueueFileSize": Problem("error", "queue", f"brokers do not start with it: {_REBUILD}"),
    "impossibleTopic": Problem("info", "queue", "no queue can have this name: read its messages from the log"),
    # ---- index
    "brokenIndexFile": Problem("error", "index", f"look-ups by key do not use it: {_REBUILD}"),
    "misplacedIndexFile": Problem("error", "index", f"a broker's look-ups by key miss messages: {_REBUILD}"),
    "wrongIndexHeader": Problem("error", "index", f"look-ups by key and time miss messages: {_REBUILD}"),
    "wrongIndexCount": Problem("error", "index", f"look-ups by key miss items or find remains: {_REBUILD}"),
    "brokenIndexChain": Problem("error", "index", f"look-ups of the keys in this slot miss messages: {_REBUILD}"),
    "missingIndexItem": Problem("error", "index", f"look-ups by this key miss the message: {_REBUILD}"),
    "extraIndexItem": Problem("warning", "index", f"look-ups read messages in vain: {_REBUILD}"),
    "wrongIndexTime": Problem("warning", "index", f"look-ups by key and time miss the message: {_REBUILD}"),
    "wrongIndexFileSize": Problem("error", "index", f"a broker stretches it and finds nothing in it: {_REBUILD}"),
    "unsettledIndexFile": Problem(
        "info",
        "index",
        "a broker was writing it when it was looked at or copied, or when the broker was killed: what comes after was "
        "not checked; a broker that starts on a store with `abort` makes it anew",
    ),
    "notIndexed": Problem(
        "info",
        "index",
        "before the first and after the last index file messages are found by a scan only; where that is not because "
        f"the index was switched off, {_REBUILD}",
    ),
    # ---- checkpoint, abort and what lies about
    "checkpointAhead": Problem(
        "error",
        "layout",
        "after a crash a broker would begin too late: call rmqstore_spark.rebuild(store), which writes a right one",
    ),
    "abort": Problem(
        "warning",
        "layout",
        "the broker did not stop cleanly, and recovers when it starts: check the log first, or call "
        "rmqstore_spark.rebuild(store)",
    ),
    "brokerRuns": Problem("info", "layout", "the store changes while it is checked: check a copy or a snapshot of it"),
    "strayFile": Problem("warning", "layout", _BROKER_STOPS),
    "harmlessStray": Problem("info", "layout", "brokers pass over it; move it away if nobody knows what it is for"),
    "link": Problem(
        "warning",
        "layout",
        "put the file itself there: a link can be changed to lead elsewhere, and nothing is written through",
    ),
    "foreignOwner": Problem(
        "warning", "layout", "change the owner to the store's (chown): a broker may not write to it"
    ),
    "notLookedAt": Problem(
        "info", "layout", "what is only there was not checked: a broker's admin tool (mqadmin) can tell"
    ),
    "timerNotLookedAt": Problem(
        "info", "layout", "the timer's own files were not checked; which messages it has to deliver, the log tells, too"
    ),
    # ---- config and offsets
    "noTopicConfig": Problem(
        "info",
        "config",
        "a broker does not serve topics that config/topics.json lacks: bring it back, or make them anew",
    ),
    "brokenConfig": Problem(
        "error",
        "config",
        "a broker starts without what was in it, or not at all: bring it back from a backup",
    ),
    "oldConfig": Problem(
        "warning",
        "config",
        "the backup may be older, and what was made or consumed since then is not in it: bring the file itself back "
        "before a broker starts, or see whether the backup will do and copy it there",
    ),
    "topicWithoutConfig": Problem(
        "warning",
        "config",
        "a broker does not serve it: make the topic (mqadmin updateTopic), or rmqstore_spark.rebuild(store)",
    ),
    "queueBeyondConfig": Problem(
        "warning", "config", "a broker does not serve this queue: raise readQueueNums (mqadmin updateTopic)"
    ),
    "topicWithoutQueue": Problem("info", "config", "nothing was ever stored in it, or all of it has expired"),
    "offsetAheadOfQueue": Problem(
        "warning", "offsets", "the group misses what comes next: set its offset back (mqadmin resetOffsetByTime)"
    ),
    "offsetBehindQueue": Problem("info", "offsets", "messages were deleted before the group has consumed them"),
    "offsetWithoutQueue": Problem("info", "offsets", "the group consumed a queue that is gone"),
}


@dataclass(frozen=True)
class Finding:
    """A row of the table but for what PROBLEMS says."""

    problem: str
    file: str | None = None
    file_position: int | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: str | None = None
    found: str | None = None
    count: int = 1


def to_batch(findings: Iterable[Finding]) -> pa.RecordBatch:
    """Rows of the table."""
    some = list(findings)
    kinds = [PROBLEMS[finding.problem] for finding in some]
    columns = {
        "severity": [kind.severity for kind in kinds],
        "area": [kind.area for kind in kinds],
        "problem": [finding.problem for finding in some],
        "file": [_shown(finding.file) for finding in some],
        "filePosition": [finding.file_position for finding in some],
        "commitLogOffset": [finding.position for finding in some],
        "topic": [_shown(finding.topic) for finding in some],
        "queueId": [finding.queue_id for finding in some],
        "queueOffset": [finding.queue_offset for finding in some],
        "expected": [_shown(finding.expected) for finding in some],
        "found": [_shown(finding.found) for finding in some],
        "advice": [kind.advice for kind in kinds],
        "count": [finding.count for finding in some],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def _shown(text: str | None) -> str | None:
    """Names from a store may be no text that can be shown."""
    return None if text is None else one_line(text)
