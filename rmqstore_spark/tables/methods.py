"""Each table as a method, so that people and type checkers see which there are.

Made by tools/reference.py (`make reference`) from the tables; what is changed here is lost.
"""

from collections.abc import Callable
from typing import Unpack

import pyarrow as pa

from rmqstore_spark.option_texts import Names, TableOptions
from rmqstore_spark.progress import Progress, shown_if_asked


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

        Columns: topic (its name), kind (user, retry, dlq or system), readQueueNums (how many queues consumers see),
        writeQueueNums (how many queues producers see), perm (R: read, W: write, X: inherit), order (whether the broker
        was told that it is ordered), messageType (NORMAL, FIFO, DELAY, TRANSACTION, ...), cleanupPolicy (DELETE or
        COMPACTION), queueType (SimpleCQ or BatchCQ), attributes (all attributes that the broker was told), configured
        (whether topics.json has it), queues (how many there are on the disk), messages (how many exist in these
        queues), lastStoreTimestamp (store time of its last message). Those from readQueueNums to attributes are null
        where it is not configured.
        """
        return self.table("topics", columns, **options)

    def queues(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a queue.

        Columns: topic (the queue's topic), queueId (its number in the topic), queueType (simple, batch, lmq or
        rocksdb), minOffset (queue offset of the first message that exists), maxOffset (queue offset after the last
        message), messages (how many exist), firstCommitLogOffset (physical offset of the first message that exists),
        lastCommitLogOffset (physical offset of the last message), firstStoreTimestamp (store time of the first message
        that exists), lastStoreTimestamp (store time of the last message), files (how many ConsumeQueue files it has),
        sizeOnDisk (bytes that these files take on the disk).
        """
        return self.table("queues", columns, **options)

    def groups(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a consumer group that the configuration or an offset knows.

        Columns: group (its name), consumeEnable (whether it may consume), broadcastEnable (whether it may consume in
        broadcast mode), retryQueueNums (how many queues its retry topic has), retryMaxTimes (how often a message is
        retried before it goes to the DLQ), attributes (all attributes that the broker was told), configured (whether
        subscriptionGroup.json has it), topics (those that it has offsets of). Those from consumeEnable to attributes
        are null where it is not configured.
        """
        return self.table("groups", columns, **options)

    def offsets(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is how far a consumer group is in a queue.

        Columns: group (the consumer group), topic (the queue's topic), queueId (the queue's number), consumerOffset
        (queue offset of the message that the group gets next), minOffset (queue offset of the first message that
        exists), maxOffset (queue offset after the last message), lag (how many messages it has not consumed that still
        exist, whatever their tags; below 0: the queue ends before the group's offset), lastConsumedTimestamp (store
        time of the last message that it consumed), lagMillis (store time from the last message that it consumed, or
        else the first that exists, to the last there is), expired (whether its next message is deleted already). Those
        from minOffset on are null where there is no such queue.
        """
        return self.table("offsets", columns, **options)

    def segments(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a commitlog file.

        Columns: file (its path), startOffset (physical offset at which its messages begin), endOffset (physical offset
        at which they end), fileSize (its size in bytes), allocated (bytes that it takes on the disk), state (used;
        last: the log ends in it; spare: nothing is in it yet), firstStoreTimestamp (store time of its first message),
        lastStoreTimestamp (store time of its last message).
        """
        return self.table("segments", columns, **options)

    def checkpoint(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a store: what its broker noted down of its files.

        Columns: physicMsgTimestamp (store time up to which the log was on disk; null where that is not known),
        logicsMsgTimestamp (the same of the queues), indexMsgTimestamp (the same of the index), masterFlushedOffset
        (physical offset up to which the master's log was on disk; brokers since 5.0.0), confirmPhyOffset (physical
        offset up to which replicas had confirmed; brokers since 5.1.1), abort (whether the broker runs, or did not stop
        cleanly), locked (whether somebody holds the store's lock).
        """
        return self.table("checkpoint", columns, **options)

    def consumequeue(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a unit of a ConsumeQueue, as it stands there.

        Columns: topic (the queue's topic), queueId (the queue's number), queueOffset (of its message; in a BatchCQ, of
        the first one), commitLogOffset (physical offset of its message), size (bytes of its message in the log),
        tagsCode (hash of the tags; in SCHEDULE_TOPIC_XXXX the time at which the message is due; or an address in
        consumequeue_ext/), file (path of the ConsumeQueue file), filePosition (where it stands in this file), messages
        (how many it stands for; more than 1 only in a BatchCQ), tagsHash (tagsCode, or what is at that address),
        storeTimestamp (in a BatchCQ, or what is at that address; else null), filterBitMap (what is at that address;
        else null).
        """
        return self.table("consumequeue", columns, **options)

    def indexfiles(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an index file, as its header says.

        Columns: file (its path), beginTimestamp (store time of its first item's message), endTimestamp (store time of
        its last item's message), beginOffset (physical offset of its first item's message), endOffset (physical offset
        of its last item's message), usedSlots (how many hash slots are in use), items (how many items it has), capacity
        (how many items it has room for; null where header and items contradict each other).
        """
        return self.table("indexfiles", columns, **options)

    def index(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an item of an index file, as it stands there.

        Columns: file (path of the index file), item (its number in the file), keyHash (hash of topic#key),
        commitLogOffset (physical offset of the message), storeTimestamp (the message's, in whole seconds after the
        file's beginTimestamp), previousItem (the next older item of the same hash slot; 0: there is none).
        """
        return self.table("index", columns, **options)

    def delayed(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a message that was sent to be delivered later.

        Columns: kind (level or timer), state (pending, delivered or cancelled, as of the log's last message),
        deliverTimestamp (when it is due), delayLevel (from 1 on; null for a timer), realTopic (the topic that it is
        delivered to), realQueueId (the queue that it is delivered to), msgId (the client's message id), keys (words
        with spaces between them), storeTimestamp (store time of the message that waits), commitLogOffset (physical
        offset of the message that waits).
        """
        return self.table("delayed", columns, **options)

    def transactions(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a transaction, of which there is a half message.

        Columns: state (open, committed, rolledBack or givenUp; givenUp: its producer is asked no more), producerGroup
        (the group that the broker asks), transactionId (the client's id of it), realTopic (the topic that a commit puts
        the message into), msgId (the client's message id), keys (words with spaces between them), checkTimes (how often
        the producer was asked; null where only RocksDB knows), storeTimestamp (store time of the first half message),
        commitLogOffset (physical offset of the first half message).
        """
        return self.table("transactions", columns, **options)

    def inflight(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a popped message that nobody acknowledged.

        Columns: group (the group that popped it), topic (the topic that it was popped from), queueId (the queue that it
        was popped from), queueOffset (its queue offset there), popTimestamp (when it was popped), visibleTimestamp
        (when it can be popped again), retries (how often it was given to a consumer before).
        """
        return self.table("inflight", columns, **options)

    def traces(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a record of the trace topic.

        Columns: traceType (Pub: sent; SubBefore and SubAfter: consumed; EndTransaction; Recall), timestamp (the
        client's clock), group (of the producer or the consumer), topic (the message's topic), msgId (the message's id),
        tags (the message's tags), keys (the message's keys), storeHost (the broker), clientHost (the client),
        costMillis (how long it took), success (whether it went well), region (the broker's region), offsetMsgId (the
        broker's message id), bodyLength (bytes of the message's body), msgType (number of the client's MessageType),
        requestId (the same in SubBefore and SubAfter of one delivery), retryTimes (how often it was delivered before),
        contextCode (number of the client's ConsumeReturnType), transactionId (the client's id of the transaction),
        transactionState (what the producer answered), fromTransactionCheck (whether the broker had asked for it),
        storeTimestamp (store time of the trace message), commitLogOffset (physical offset of the trace message). What a
        record of its type does not have is null.
        """
        return self.table("traces", columns, **options)

    def check(
        self,
        columns: Names | None = None,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[TableOptions],
    ) -> pa.Table:
        """A row is something that is wrong, or suspicious.

        Columns: severity (error, warning or info), area (log, queue, index, config, offsets or layout), problem (its
        name), file (the file that it is in), filePosition (where in this file), commitLogOffset (physical offset of the
        message), topic (the message's topic), queueId (the message's queue), queueOffset (the message's queue offset),
        expected (what should be there), found (what is there), advice (what to do), count (how many there are in a row,
        of which this is the first). The whole log is read, once.

        Args:
            progress: is told ten times a second how far it is, as an object with `what`, `done` and `total`, in bytes
                where its `noun` is None. Without it, the log says so every few seconds.
        """
        with shown_if_asked(progress):
            return self.table("check", columns, **options)
