"""Each table as a method, so that people and type checkers see which there are. tests/face/test_store.py holds them
against the registry."""

import contextlib
from collections.abc import Callable
from typing import Unpack

import pyarrow as pa

from rmqstore_spark.option_texts import Names, TableOptions
from rmqstore_spark.progress import Progress, shown


class TableMethods:
    """The tables of stores.

    Each method takes the names of the columns that it shall have (`store`, the path of the store, comes only so), and
    as keyword arguments the read options that go with the table; any other is an OptionError that names them.
    """

    def table(self, name: str, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A table by its name."""
        raise NotImplementedError

    def topics(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a topic that the configuration, a queue or a consumer's offset knows.

        Columns: topic, kind (user, retry, dlq, system), readQueueNums, writeQueueNums, perm, order, messageType,
        cleanupPolicy, queueType, attributes, configured, queues, messages, lastStoreTimestamp.
        """
        return self.table("topics", columns, **options)

    def queues(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a queue.

        Columns: topic, queueId, queueType (simple, batch, lmq, rocksdb), minOffset (of the first message that exists),
        maxOffset (after the last one), messages, firstCommitLogOffset, lastCommitLogOffset, firstStoreTimestamp,
        lastStoreTimestamp, files, sizeOnDisk (bytes).
        """
        return self.table("queues", columns, **options)

    def groups(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a consumer group that the configuration or an offset knows.

        Columns: group, consumeEnable, broadcastEnable, retryQueueNums, retryMaxTimes, attributes, configured, topics
        (those that it has offsets of).
        """
        return self.table("groups", columns, **options)

    def offsets(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is how far a consumer group is in a queue.

        Columns: group, topic, queueId, consumerOffset (of the message that it gets next), minOffset, maxOffset, lag
        (messages that it has not consumed and that still exist, whatever their tags), lastConsumedTimestamp, lagMillis
        (store time from the last message it consumed, or the first that exists, to the last there is), expired (its
        next message is deleted already). A lag below 0: the queue ends before the group's offset.
        """
        return self.table("offsets", columns, **options)

    def segments(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a commitlog file.

        Columns: file, startOffset, endOffset (physical offsets of its messages), fileSize, allocated (bytes on the
        disk), state (used, last, spare), firstStoreTimestamp, lastStoreTimestamp.
        """
        return self.table("segments", columns, **options)

    def checkpoint(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a store: what its broker noted down of its files.

        Columns: physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp (up to which the log, the queues and the
        index were on disk; null where that is not known), masterFlushedOffset, confirmPhyOffset, abort (the broker
        runs, or did not stop cleanly), locked (somebody holds the store's lock).
        """
        return self.table("checkpoint", columns, **options)

    def consumequeue(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a unit of a ConsumeQueue, as it stands there.

        Columns: topic, queueId, queueOffset (of a BatchCQ unit its first message's), commitLogOffset, size,
        tagsCode, file, filePosition, messages (in the unit), tagsHash, storeTimestamp, filterBitMap (these
        three from `consumequeue_ext/`).
        """
        return self.table("consumequeue", columns, **options)

    def indexfiles(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an index file, as its header says.

        Columns: file, beginTimestamp, endTimestamp, beginOffset, endOffset, usedSlots, items, capacity.
        """
        return self.table("indexfiles", columns, **options)

    def index(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an item of an index file, as it stands there.

        Columns: file, item, keyHash, commitLogOffset, storeTimestamp, previousItem.
        """
        return self.table("index", columns, **options)

    def delayed(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a message that was sent to be delivered later.

        Columns: kind (level, timer), state (pending, delivered, cancelled: as of the log's last message),
        deliverTimestamp, delayLevel, realTopic, realQueueId, msgId, keys, storeTimestamp, commitLogOffset.
        """
        return self.table("delayed", columns, **options)

    def transactions(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a transaction, of which there is a half message.

        Columns: state (open, committed, rolledBack, givenUp), producerGroup, transactionId, realTopic, msgId,
        keys, checkTimes, storeTimestamp, commitLogOffset.
        """
        return self.table("transactions", columns, **options)

    def inflight(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a popped message that nobody acknowledged.

        Columns: group, topic, queueId, queueOffset, popTimestamp, visibleTimestamp, retries.
        """
        return self.table("inflight", columns, **options)

    def traces(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a record of the trace topic.

        Columns: traceType, timestamp, group, topic, msgId, tags, keys, storeHost, clientHost, costMillis,
        success, region, offsetMsgId, bodyLength, msgType, requestId, retryTimes, contextCode, transactionId,
        transactionState, fromTransactionCheck, storeTimestamp, commitLogOffset.
        """
        return self.table("traces", columns, **options)

    def check(
        self,
        columns: Names | None = None,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[TableOptions],
    ) -> pa.Table:
        """A row is something that is wrong, or suspicious. The whole log is read, once.

        Columns: severity (error, warning, info), area (log, queue, index, config, offsets, layout), problem,
        file, filePosition, commitLogOffset, topic, queueId, queueOffset, expected, found, advice, count (in a
        row, of which this is the first).

        Args:
            progress: is told ten times a second how far it is, as an object with `what`, `done` and `total`, in bytes
                where its `noun` is None. Without it, the log says so every few seconds.
        """
        with contextlib.nullcontext() if progress is None else shown(progress):
            return self.table("check", columns, **options)
