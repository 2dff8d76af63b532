"""The only table of problems that check can find or a salvage can lose: the severity, area and advice of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, Column, as_schema
from rmqstore_spark.errors import one_line

COLUMNS = (
    Column("severity", TEXT, "error, warning or info"),  # something is lost or wrong; it will be, or may be; neither
    Column("area", TEXT, "log, queue, index, config, offsets or layout"),
    Column("problem", TEXT, "name of the problem"),  # of PROBLEMS
    Column("file", TEXT, "file with the problem"),
    Column("filePosition", LONG, "position in this file"),
    Column("commitLogOffset", LONG, "physical offset of the message"),
    Column("topic", TEXT, "topic of the message"),
    Column("queueId", INT, "queue of the message"),
    Column("queueOffset", LONG, "queue offset of the message"),
    Column("expected", TEXT, "what should be there"),
    Column("found", TEXT, "what is there"),
    Column("advice", TEXT, "what to do"),
    Column("count", LONG, "number of findings in a row, of which this is the first"),
)
SCHEMA = as_schema(COLUMNS)


class Effect(Enum):
    """What a problem means for a broker that starts on the store, and for its consumers; the worst first."""

    STOPS = auto()  # most brokers do not start
    DOUBTS = auto()  # a broker starts without what it is configured to have, or not at all
    DELETES = auto()  # messages are damaged or missing, and a broker that recovers deletes what comes after them
    LOSES = auto()  # messages are gone
    HIDES = auto()  # messages are in the log, and consumers do not get them, or get others
    FORGETS = auto()  # topics, queues or groups are not as they were
    UNFINDS = auto()  # look-ups by key miss messages
    NOTHING = auto()


class Fix(Enum):
    """What solves a problem, in the order in which it is done."""

    RESTORE = auto()  # from a replica or a backup; nothing else helps
    MOVE = auto()  # a file out of the store
    UNLINK = auto()  # the file itself in the place of a link to it
    OWN = auto()  # give the file to the owner of the store
    CONFIG = auto()  # config/ from its .bak files, and from what offsets, queues and the log say
    SALVAGE = auto()  # a new store of what is whole: it has none of the problems that a rebuild solves either
    REBUILD = auto()
    ADMIN = auto()  # the broker's admin tool, once the broker runs
    NONE = auto()


class Problem(NamedTuple):
    """A kind of finding.

    Attributes:
        severity: error, warning or info.
        area: the part of the store, as in the column `area`.
        advice: what to do in the store; empty for problems that check does not find.
        salvaged: what to say after a salvage; empty for problems that a salvage does not report.
        effect: what it means for a broker or its consumers: the verdict begins with it.
        fix: the command that mends it; none where check does not find the problem, or it is info.
        counts: what the column `count` counts; empty: findings alone.
    """

    severity: str
    area: str
    advice: str = ""
    salvaged: str = ""
    effect: Effect = Effect.NOTHING
    fix: Fix = Fix.NONE
    counts: str = ""


CONFIG_CALL = "Store(path).rebuild_config()"  # `rmqstore rebuild --config` is the same at a terminal
CALL = "rmqstore_spark.rebuild(store)"  # in advice; `rmqstore rebuild` is the same at a terminal
COPY_CALL = "Store(path).copy(target)"  # in its place for kinds of stores that are not written to; `rmqstore copy`
_REBUILD = f"call {CALL}, which builds new queues and index files from the log"
_CONFIG = f"call {CONFIG_CALL}, which takes its .bak, or what else tells of it, and says what could not be known"
_BROKER_STOPS = "move it out of the store: most brokers do not start with it"

PROBLEMS = {
    # ---- log
    "damagedUnit": Problem(
        "error",
        "log",
        "restore the segment from a replica or a backup; otherwise make a new store of what is whole (rmqstore "
        "salvage). A broker that recovers over the damage deletes everything after it",
        salvaged="the new store has everything after it",
        effect=Effect.DELETES,
        fix=Fix.SALVAGE,
        counts="bytes",
    ),
    "unwrittenPages": Problem(
        "error",
        "log",
        "messages are missing here, with later ones behind them: the store was copied while its broker wrote, or the "
        "machine failed before all pages were on disk. Copy it again (best as a snapshot of the file system), or "
        "restore the segment from a replica; otherwise use rmqstore salvage: a broker that recovers over the gap "
        "deletes everything after it",
        effect=Effect.DELETES,
        fix=Fix.SALVAGE,
        counts="bytes",
    ),
    "unwrittenEnd": Problem(
        "warning",
        "log",
        "only a part of the last message is here, though its queue has it: the store was copied while its broker "
        "wrote, or the machine failed before all pages were on disk. Copy it again; otherwise rmqstore salvage makes a "
        "store without this message, and a broker that starts drops it",
        effect=Effect.LOSES,
        fix=Fix.SALVAGE,
        counts="bytes",
    ),
    "wrongCompression": Problem(
        "error",
        "log",
        "consumers cannot decompress the body, and do not get this message: sysFlag or the body's first bytes are "
        "damaged; restore the segment from a replica or a backup, or read the bytes with decompress=false",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
    ),
    "lostEnd": Problem(
        "error",
        "log",
        salvaged="restore the log's end, and salvage again; consumers go on after the messages of the new store",
        effect=Effect.LOSES,
    ),
    "missingSegment": Problem(
        "error",
        "log",
        "restore the missing segments (option storePathCommitLog names other directories with segments); otherwise use "
        "rmqstore salvage",
        effect=Effect.DELETES,
        fix=Fix.SALVAGE,
        counts="segments",
    ),
    "wrongFileSize": Problem(
        "error",
        "layout",
        "copy the file again from its source: most brokers do not start with a file of another size",
        effect=Effect.STOPS,
        fix=Fix.RESTORE,
    ),
    "expiredMeanwhile": Problem("info", "log", "the broker deleted this segment during the check"),
    "uncommitted": Problem(
        "info",
        "log",
        "the node had not noted that these entries are committed, and mostly they are: its notes lag. Read all nodes "
        "together (deduplicate=true) to see which entries most nodes have",
        counts="entries",
    ),
    "longTopic": Problem(
        "info",
        "log",
        "never start a broker before 5.1.0 on this store: it deletes the first such message and everything after it",
        counts="messages",
    ),
    "longRecovery": Problem(
        "info",
        "log",
        "brokers since 5.4.0 rebuild queues and index from their last commitLogRecoverMaxNum (10) segments only: if "
        "queues or index are lost, call rmqstore_spark.rebuild(store), or raise that setting before the broker starts",
    ),
    # ---- queue
    "noQueues": Problem("error", "queue", f"consumers get nothing: {_REBUILD}", effect=Effect.HIDES, fix=Fix.REBUILD),
    "missingQueueUnit": Problem(
        "error",
        "queue",
        f"consumers never get these messages: {_REBUILD}",
        effect=Effect.HIDES,
        fix=Fix.REBUILD,
        counts="messages",
    ),
    "wrongQueueUnit": Problem(
        "error",
        "queue",
        f"consumers get a wrong message, or none: {_REBUILD}",
        effect=Effect.HIDES,
        fix=Fix.REBUILD,
        counts="messages",
    ),
    "shiftedQueueUnit": Problem(
        "error",
        "queue",
        "the log has lost messages of this queue, and the queue was rebuilt since; or a message's queueOffset, which "
        "no checksum covers, is damaged. Consumers get messages at other queue offsets than the log says, or not at "
        "all, also after a rebuild; rmqstore salvage makes a store in which both agree",
        effect=Effect.HIDES,
        fix=Fix.SALVAGE,
        counts="messages",
    ),
    "extraQueueUnit": Problem(
        "error",
        "queue",
        "the log has no message of this queue there. At the queue's end rmqstore_spark.rebuild(store) drops the unit; "
        "with messages after it, only rmqstore salvage makes a store in which these keep their queue offsets",
        effect=Effect.HIDES,
        fix=Fix.SALVAGE,
        counts="units",
    ),
    "queueAheadOfLog": Problem(
        "warning",
        "queue",
        "the log ends before the messages of these units: restore the log's end if it was lost; otherwise a broker "
        "that starts drops the units, and so does rmqstore_spark.rebuild(store)",
        effect=Effect.LOSES,
        fix=Fix.REBUILD,
        counts="messages",
    ),
    "lostMessages": Problem(
        "error",
        "queue",
        "these messages were where the log is damaged, as their queue knows: restore the segment from a replica or a "
        "backup, or send them again if their producer can. rmqstore salvage makes a store in which consumers skip them",
        salvaged="consumers skip these messages; send them again if their producer can",
        effect=Effect.DELETES,
        fix=Fix.SALVAGE,
        counts="messages",
    ),
    "repeatedQueueOffset": Problem(
        "error",
        "queue",
        "another message has the same queueOffset, and the queue names that one, so consumers never get this message: "
        "read it by its commitLogOffset and send or append it again; rmqstore salvage makes a store without it",
        effect=Effect.HIDES,
        fix=Fix.SALVAGE,
        counts="messages",
    ),
    "notDispatched": Problem(
        "info",
        "queue",
        "the last messages are not in their queues yet: a running broker adds them, and so does one that starts on a "
        "store with `abort`, up to the first damage in the log",
        counts="messages",
    ),
    "aheadOfEnd": Problem(
        "info",
        "queue",
        "the store was written to after its log was read or copied, or its broker was killed: a broker that starts on "
        "a copy drops these units",
        counts="units",
    ),
    "queueGap": Problem(
        "warning",
        "queue",
        "queue offsets are missing, and consumers skip them. A broker that rebuilds the queue by itself, or a rebuild, "
        "gives other offsets to the messages after the gap; rmqstore salvage makes a store in which they keep their "
        "offsets",
        effect=Effect.LOSES,
        fix=Fix.SALVAGE,
        counts="messages",
    ),
    "queueFileGap": Problem(
        "error",
        "queue",
        f"files of this queue are missing: {_REBUILD}",
        effect=Effect.HIDES,
        fix=Fix.REBUILD,
        counts="files",
    ),
    "wrongQueueFileSize": Problem(
        "error", "queue", f"brokers do not start with this file: {_REBUILD}", effect=Effect.STOPS, fix=Fix.REBUILD
    ),
    "impossibleTopic": Problem(
        "info", "queue", "no queue can have this name: read its messages from the log", counts="messages"
    ),
    # ---- logs of single queues: of compaction topics, and of a tiered store
    "damagedCompactionLog": Problem(
        "error",
        "log",
        "consumers of this compaction topic miss what was here: restore the file from a replica or a backup. Newer "
        "messages are in the commitlog as well, and option compacted=true finds them there",
        effect=Effect.LOSES,
        fix=Fix.RESTORE,
        counts="bytes",
    ),
    "unorderedQueueLog": Problem(
        "error",
        "log",
        "consumers search this log by queueOffset and may miss messages: restore its files from a replica or a backup",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
        counts="messages",
    ),
    "foreignInQueueLog": Problem(
        "error",
        "log",
        "consumers of this queue get a message of another one: the file was moved or copied here; restore the queue's "
        "own from a replica or a backup",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
        counts="messages",
    ),
    "unfinishedQueueLog": Problem(
        "info",
        "log",
        "a broker was killed while it wrote here, or the file was copied meanwhile; a broker that starts drops these "
        "bytes",
    ),
    "damagedQueueLog": Problem(
        "error",
        "log",
        "a broker cannot give these messages to consumers any more: restore the file of the tiered store from a backup",
        effect=Effect.LOSES,
        fix=Fix.RESTORE,
        counts="bytes",
    ),
    "holeInQueueLog": Problem(
        "error",
        "log",
        "the tiered store has a hole here, as after a broker was killed. Read it beside the broker's own store (option "
        "tiered) if that still has these messages; otherwise restore the missing file from a backup",
        effect=Effect.LOSES,
        fix=Fix.RESTORE,
        counts="bytes",
    ),
    "wrongTieredQueue": Problem(
        "error",
        "queue",
        "consumers get a wrong message, or none: restore this file of the tiered store from a backup. Reads here need "
        "the queue's log alone",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
        counts="messages",
    ),
    "tieredQueueAhead": Problem(
        "error",
        "queue",
        "the log of this queue has lost its end, or a broker was killed before it brought it. Restore its files from "
        "a backup, or read beside the broker's own store (option tiered) if that still has these messages",
        effect=Effect.LOSES,
        fix=Fix.RESTORE,
        counts="messages",
    ),
    "noTieredQueue": Problem(
        "warning",
        "queue",
        "a broker may not have brought them yet; otherwise restore the directory of the tiered store from a backup. "
        "Reads here need the queue's log alone",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
    ),
    "wrongCompactionQueue": Problem(
        "error",
        "queue",
        "consumers of this compaction topic miss messages: restore this file and its log from a replica or a backup. "
        "Option compacted=true needs the log alone",
        effect=Effect.HIDES,
        fix=Fix.RESTORE,
        counts="messages",
    ),
    # ---- index
    "brokenIndexFile": Problem(
        "error", "index", f"look-ups by key do not use this file: {_REBUILD}", effect=Effect.UNFINDS, fix=Fix.REBUILD
    ),
    "misplacedIndexFile": Problem(
        "error",
        "index",
        f"a broker's look-ups by key miss messages: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
    ),
    "wrongIndexHeader": Problem(
        "error", "index", f"look-ups by key and time miss messages: {_REBUILD}", effect=Effect.UNFINDS, fix=Fix.REBUILD
    ),
    "wrongIndexCount": Problem(
        "error",
        "index",
        f"look-ups by key miss items or find leftovers: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
    ),
    "brokenIndexChain": Problem(
        "error",
        "index",
        f"look-ups of the keys in this slot miss messages: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
        counts="items",
    ),
    "missingIndexItem": Problem(
        "error",
        "index",
        f"look-ups by this key miss the message: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
        counts="items",
    ),
    "extraIndexItem": Problem(
        "warning", "index", f"look-ups read messages for nothing: {_REBUILD}", fix=Fix.REBUILD, counts="items"
    ),
    "wrongIndexTime": Problem(
        "warning",
        "index",
        f"look-ups by key and time miss the message: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
        counts="items",
    ),
    "wrongIndexFileSize": Problem(
        "error",
        "index",
        f"a broker extends this file and finds nothing in it: {_REBUILD}",
        effect=Effect.UNFINDS,
        fix=Fix.REBUILD,
    ),
    "unsettledIndexFile": Problem(
        "info",
        "index",
        "a broker was writing this file when it was read or copied, or when the broker was killed. What follows was "
        "not checked; a broker that starts on a store with `abort` rebuilds the file",
    ),
    "notIndexed": Problem(
        "info",
        "index",
        f"messages before the first and after the last index file are only found by a scan; unless the index was "
        f"switched off, {_REBUILD}",
        counts="keys",
    ),
    # ---- checkpoint, abort and what lies about
    "checkpointAhead": Problem(
        "error",
        "layout",
        "after a crash a broker would begin its recovery too late: call rmqstore_spark.rebuild(store), which writes a "
        "correct checkpoint",
        fix=Fix.REBUILD,
    ),
    "abort": Problem(
        "warning",
        "layout",
        "the broker did not stop cleanly, and recovers when it starts: check the log first, or call "
        "rmqstore_spark.rebuild(store)",
        fix=Fix.REBUILD,
    ),
    "brokerRuns": Problem("info", "layout", "the store changes during the check: check a copy or a snapshot of it"),
    "strayFile": Problem("warning", "layout", _BROKER_STOPS, effect=Effect.STOPS, fix=Fix.MOVE),
    "harmlessStray": Problem("info", "layout", "brokers ignore this file; move it away if nobody knows what it is for"),
    "link": Problem(
        "warning",
        "layout",
        "replace the link by the file itself: a link can be redirected, and nothing is written through one",
        fix=Fix.UNLINK,
    ),
    "foreignOwner": Problem(
        "warning",
        "layout",
        "change the owner to the store's (chown): otherwise a broker may not be able to write to the file",
        fix=Fix.OWN,
        counts="files",
    ),
    "notLookedAt": Problem(
        "info", "layout", "what is only stored there was not checked: use a broker's admin tool (mqadmin)"
    ),
    "timerNotLookedAt": Problem(
        "info",
        "layout",
        "timerwheel/ and timerlog/ were not checked; pending timers are derived from the log",
        counts="files",
    ),
    # ---- config and offsets
    "noTopicConfig": Problem(
        "info",
        "config",
        f"a broker does not serve topics that config/topics.json lacks: {_CONFIG}",
        counts="topics",
    ),
    "brokenConfig": Problem(
        "error",
        "config",
        f"a broker starts without the contents of this file, or not at all: {_CONFIG}",
        salvaged=f"the new store has nothing of this file but topics with messages: call {CONFIG_CALL} there, which "
        "tells what else can be known",
        effect=Effect.DOUBTS,
        fix=Fix.CONFIG,
    ),
    "oldConfig": Problem(
        "warning",
        "config",
        f"the backup may be older, and lacks what was created or consumed since: {_CONFIG}",
        effect=Effect.DOUBTS,
        fix=Fix.CONFIG,
    ),
    "brokenEpochs": Problem(
        "warning",
        "config",
        "a broker in controller mode does not know from this file which master wrote what part of the log; the backup, "
        "if it is whole, is read instead: restore the file, or let the replica copy its log from the master again",
        fix=Fix.RESTORE,
    ),
    "otherOffsets": Problem(
        "info",
        "config",
        "a broker has the one file with enableLmq, the other without, and does not look at both: groups begin anew "
        "where that is switched; if the broker has this file, move the other one away",
    ),
    "topicWithoutConfig": Problem(
        "warning",
        "config",
        f"a broker does not serve this topic: call {CONFIG_CALL}, or create it (mqadmin updateTopic)",
        effect=Effect.HIDES,
        fix=Fix.CONFIG,
    ),
    "queueBeyondConfig": Problem(
        "warning",
        "config",
        f"a broker does not serve this queue: call {CONFIG_CALL}, or raise readQueueNums (mqadmin updateTopic)",
        effect=Effect.HIDES,
        fix=Fix.CONFIG,
    ),
    "topicWithoutQueue": Problem("info", "config", "nothing was ever stored in this topic, or everything has expired"),
    "offsetAheadOfQueue": Problem(
        "warning",
        "offsets",
        "the group misses the next messages: set its offset back (mqadmin resetOffsetByTime)",
        effect=Effect.FORGETS,
        fix=Fix.ADMIN,
    ),
    "offsetBehindQueue": Problem("info", "offsets", "messages were deleted before the group consumed them"),
    "offsetWithoutQueue": Problem("info", "offsets", "the group consumed a queue that is gone"),
}


@dataclass(frozen=True)
class Finding:
    """A row of the table, with a field for each column except those that PROBLEMS gives.

    Large because the row has as many columns.

    Attributes:
        count: the number of consecutive problems, of which this is the first; None if unknown.
        advice: what to do, if it differs from PROBLEMS.
    """

    problem: str
    file: str | None = None
    file_position: int | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: str | None = None
    found: str | None = None
    count: int | None = 1
    advice: str | None = None


def to_batch(findings: Iterable[Finding], is_salvaged: bool = False, is_writable: bool = True) -> pa.RecordBatch:
    """Rows of the table.

    Args:
        is_salvaged: whether the findings are the losses of a salvage.
        is_writable: whether the store's queues and index can be made anew in their place; else a copy has new ones.
    """
    call = CALL if is_writable else COPY_CALL
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
        "advice": [
            (finding.advice or (kind.salvaged if is_salvaged else kind.advice)).replace(CALL, call)
            for finding, kind in zip(some, kinds, strict=True)
        ],
        "count": [finding.count for finding in some],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def _shown(text: str | None) -> str | None:
    """A name from a store as text that can be shown."""
    return None if text is None else one_line(text)


def difference(expected: str | None, found: str | None, file: str | None) -> str:
    """What should be there and what is there, in words. What is there may say itself what was expected.

    Args:
        file: the file, which was named already.
    """
    there = str(found).removeprefix(f"{file}: ")
    return there if there.startswith("expected ") else f"expected {expected}, found {there}"
