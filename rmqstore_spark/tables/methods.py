"""Each table as a method, so that people and type checkers see which there are.

Made by tools/reference.py (`make reference`) from the tables; what is changed here is lost.
"""

from collections.abc import Callable
from typing import Unpack

import pyarrow as pa

from rmqstore_spark.progress import Progress, shown_if_asked
from rmqstore_spark.query.option_texts import Names, TableOptions


class TableMethods:
    """The tables of stores.

    Each method takes the names of the columns that it shall have (`store`, the path of the store, comes only so), and
    as keyword arguments the read options that go with the table; any other is an OptionError that names them.
    """

    def table(self, name: str, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A table by its name."""
        raise NotImplementedError

    def topics(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a topic known from the configuration, a queue or a consumer's offset.

        Columns: topic (name of the topic), kind (user, retry, dlq or system), readQueueNums (number of queues for
        consumers), writeQueueNums (number of queues for producers), perm (permissions: R read, W write, X inherit),
        order (whether it is configured as an ordered topic), messageType (NORMAL, FIFO, DELAY, TRANSACTION, ...),
        cleanupPolicy (DELETE or COMPACTION), queueType (SimpleCQ or BatchCQ), attributes (all attributes in the
        configuration), configured (whether topics.json has the topic), queues (number of queues on the disk), messages
        (number of messages in these queues), lastStoreTimestamp (store time of the last message). The columns from
        readQueueNums to attributes are null if the topic is not configured. By name only, as it takes a look at each
        message's queue unit and the others only at the ends of queues: column `bytes`, the bytes that the topic's
        messages take in the log (null for light queues, whose messages are of other topics, and in tiered stores).
        Bytes by queue, tag or hour are in table `usage`.
        """
        return self.table("topics", columns, **options)

    def queues(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a queue.

        Columns: topic (topic of the queue), queueId (number of the queue in its topic), queueType (simple, batch, lmq
        or rocksdb), minOffset (queue offset of the first message that is left), maxOffset (queue offset after the last
        message), messages (number of messages that are left), firstCommitLogOffset (physical offset of the first
        message that is left), lastCommitLogOffset (physical offset of the last message), firstStoreTimestamp (store
        time of the first message that is left), lastStoreTimestamp (store time of the last message), files (number of
        ConsumeQueue files), sizeOnDisk (bytes that these files take on the disk).
        """
        return self.table("queues", columns, **options)

    def groups(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a consumer group known from the configuration or an offset.

        Columns: group (name of the group), consumeEnable (whether the group may consume), broadcastEnable (whether the
        group may consume in broadcast mode), retryQueueNums (number of queues of the retry topic), retryMaxTimes
        (number of retries before a message goes to the DLQ), attributes (all attributes in the configuration),
        configured (whether subscriptionGroup.json has the group), topics (topics in which the group has offsets). The
        columns from consumeEnable to attributes are null if the group is not configured.
        """
        return self.table("groups", columns, **options)

    def offsets(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is the position of a consumer group in a queue.

        Columns: group (the consumer group), topic (topic of the queue), queueId (number of the queue), consumerOffset
        (queue offset of the next message for the group), minOffset (queue offset of the first message that is left),
        maxOffset (queue offset after the last message), lag (number of messages left that the group has not consumed,
        whatever their tags; below 0 if the queue ends before the group's offset), lastConsumedTimestamp (store time of
        the last message that the group consumed), lagMillis (milliseconds of store time from the last consumed message,
        or else the first one left, to the last message), expired (whether the group's next message has been deleted).
        The columns from minOffset on are null if the queue does not exist. The queues of a static topic are the
        broker's own, the parts of logic queues (table `logicqueues`): of a part that a group has passed, `lag` counts
        what is behind the last offset that it left there.
        """
        return self.table("offsets", columns, **options)

    def usage(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a topic with messages in the log, or what option `by` names.

        Columns: topic (topic that the messages are stored under), queueId (number of the queue in its topic), tag
        (property `TAGS` of the messages), bornHost (address of the producer), storeHost (address of the broker), hour
        (hour of the store time, in UTC), day (day of the store time, in UTC), messages (number of messages in the log),
        bytes (bytes that they take in the log), source (where the numbers are from: queues, log, or queues and log).
        Columns that `by` does not name are null. The numbers are exact: by topic and queue they are added up from
        ConsumeQueues, as far as these are proved to have every message of the log, and else from the log. A batch
        counts as the messages in it; a damaged message counts where its queue has it and the log is not read. A topic
        or queue that no store has is an error, as for messages; other tables log it.
        """
        return self.table("usage", columns, **options)

    def segments(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a commitlog file.

        Columns: file (path of the file), startOffset (physical offset at which its messages begin), endOffset (physical
        offset at which its messages end), fileSize (size of the file in bytes), allocated (bytes that the file takes on
        the disk), state (used; last: the log ends here; spare: still empty), firstStoreTimestamp (store time of the
        first message), lastStoreTimestamp (store time of the last message).
        """
        return self.table("segments", columns, **options)

    def checkpoint(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a store, with what its broker recorded about its files.

        Columns: physicMsgTimestamp (store time up to which the log was on disk; null if unknown), logicsMsgTimestamp
        (store time up to which the queues were on disk; null if unknown), indexMsgTimestamp (store time up to which the
        index was on disk; null if unknown), masterFlushedOffset (physical offset up to which the master's log was on
        disk; brokers since 5.0.0), confirmPhyOffset (physical offset up to which replicas had confirmed; brokers since
        5.1.1), abort (whether the broker is running, or did not stop cleanly), locked (whether the store's lock is
        held).
        """
        return self.table("checkpoint", columns, **options)

    def epochs(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a term of a master, of a broker in controller mode.

        Columns: epoch (number of the term, which grows with each new master), startOffset (physical offset that the
        term's messages begin at), endOffset (physical offset at which the next term begins, or the log ends; null if
        the term begins after that), firstStoreTimestamp (store time of the term's first message; null if the log does
        not have it), file (path of epochFileCheckpoint, or of its backup). Replicas whose epochs end at different
        offsets have different messages from the lesser one on.
        """
        return self.table("epochs", columns, **options)

    def logicqueues(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a part of a queue of a static topic.

        Columns: topic (the static topic), logicQueueId (number of the logic queue, as clients see it (globalId)),
        generation (number of the part in its logic queue (gen)), brokerName (broker that has the part), isHere (whether
        it is this store's broker), queueId (number of the queue in that broker), logicOffset (logic offset of the
        part's first message; null if it is not decided yet), startOffset (queue offset of the part's first message),
        endOffset (queue offset after the part's last message; null if the part goes on), minLogicOffset (logic offset
        of the first message of the part that is left here), maxLogicOffset (logic offset after the last message of the
        part that is here). As config/topicQueueMapping.json has them. Messages have by-name columns `logicQueueId` and
        `logicOffset`.
        """
        return self.table("logicqueues", columns, **options)

    def consumequeue(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a unit of a ConsumeQueue, as stored.

        Columns: topic (topic of the queue), queueId (number of the queue), queueOffset (queue offset of the message; in
        a BatchCQ, of the first one), commitLogOffset (physical offset of the message; in a tiered store, its position
        in the queue's log), size (bytes of the message in the log), tagsCode (hash of the tags; in SCHEDULE_TOPIC_XXXX
        the time at which the message is due; or an address in consumequeue_ext/), file (path of the ConsumeQueue file,
        or of the RocksDB's directory), filePosition (position of the unit in this file; null in a RocksDB), messages
        (number of messages in the unit; above 1 only in a BatchCQ), tagsHash (tagsCode, or the hash at the address that
        it is), storeTimestamp (store time, in a BatchCQ or from consumequeue_ext/; else null), filterBitMap (bit map of
        filters from consumequeue_ext/; else null).
        """
        return self.table("consumequeue", columns, **options)

    def indexfiles(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an index file, as described by its header.

        Columns: file (path of the file), beginTimestamp (store time of the first item's message), endTimestamp (store
        time of the last item's message), beginOffset (physical offset of the first item's message), endOffset (physical
        offset of the last item's message), usedSlots (number of hash slots in use), items (number of items), capacity
        (number of items that fit; null if header and items contradict each other).
        """
        return self.table("indexfiles", columns, **options)

    def index(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is an item of an index file, as stored.

        Columns: file (path of the index file), item (number of the item in the file), keyHash (hash of topic#key),
        commitLogOffset (physical offset of the message), storeTimestamp (store time of the message, in whole seconds
        after the file's beginTimestamp), previousItem (next older item in the same hash slot; 0 for none).
        """
        return self.table("index", columns, **options)

    def delayed(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a message that was sent to be delivered later.

        Columns: kind (level or timer), state (pending, delivered or cancelled, as of the log's last message),
        deliverTimestamp (time at which the message is due), delayLevel (delay level, from 1 on; null for a timer),
        realTopic (topic to which the message is delivered), realQueueId (queue to which the message is delivered),
        msgId (message id of the client), keys (keys, separated by spaces), storeTimestamp (store time of the waiting
        message), commitLogOffset (physical offset of the waiting message).
        """
        return self.table("delayed", columns, **options)

    def transactions(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a transaction that has a half message.

        Columns: state (open, committed, rolledBack or givenUp (the broker no longer asks the producer)), producerGroup
        (group that the broker asks), transactionId (transaction id of the client), realTopic (topic to which a commit
        writes the message), msgId (message id of the client), keys (keys, separated by spaces), checkTimes (how often
        the broker asked the producer; null if only RocksDB knows), storeTimestamp (store time of the first half
        message), commitLogOffset (physical offset of the first half message).
        """
        return self.table("transactions", columns, **options)

    def inflight(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a popped message that has not been acknowledged.

        Columns: group (group that popped the message), topic (topic that the message was popped from), queueId (queue
        that the message was popped from), queueOffset (queue offset of the message there), popTimestamp (time of the
        pop), visibleTimestamp (time at which the message can be popped again), retries (number of earlier deliveries to
        a consumer).
        """
        return self.table("inflight", columns, **options)

    def traces(self, columns: Names | None = None, **options: Unpack[TableOptions]) -> pa.Table:
        """A row is a record of the trace topic.

        Columns: traceType (Pub: sent; SubBefore, SubAfter: consumed; EndTransaction; Recall), timestamp (time of the
        event, by the client's clock), group (group of the producer or consumer), topic (topic of the message), msgId
        (id of the message), tags (tags of the message), keys (keys of the message), storeHost (address of the broker),
        clientHost (address of the client), costMillis (duration in milliseconds), success (whether it succeeded),
        region (region of the broker), offsetMsgId (message id of the broker), bodyLength (bytes of the message's body),
        msgType (number of the client's MessageType), requestId (id that SubBefore and SubAfter of one delivery share),
        retryTimes (number of earlier deliveries), contextCode (number of the client's ConsumeReturnType), transactionId
        (transaction id of the client), transactionState (answer of the producer), fromTransactionCheck (whether the
        broker had asked for it), storeTimestamp (store time of the trace message), commitLogOffset (physical offset of
        the trace message). Columns that a record of its type does not have are null.
        """
        return self.table("traces", columns, **options)

    def check(
        self,
        columns: Names | None = None,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[TableOptions],
    ) -> pa.Table:
        """A row is a problem, or something suspicious.

        Columns: severity (error, warning or info), area (log, queue, index, config, offsets or layout), problem (name
        of the problem), file (file with the problem), filePosition (position in this file), commitLogOffset (physical
        offset of the message), topic (topic of the message), queueId (queue of the message), queueOffset (queue offset
        of the message), expected (what should be there), found (what is there), advice (what to do), count (number of
        findings in a row, of which this is the first). The whole log is read, once.

        Args:
            progress: is told ten times a second how far it is, as an object with `what`, `done` and `total`, in bytes
                where its `noun` is None. Without it, the log says so every few seconds.
        """
        with shown_if_asked(progress):
            return self.table("check", columns, **options)
