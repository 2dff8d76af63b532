package interop;

import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * What RocketMQ itself finds in a store, as JSON lines: every unit of the log, every unit of every ConsumeQueue, the
 * bounds of the queues, the offsets of all keys, offsets by time.
 *
 * <p>Loading a store recovers it, which may change it: give it a copy. Arguments: the broker's configuration file, the
 * file to write, and "log" where only the units of the log are asked for, as there may be more than memory holds keys of.
 */
public final class Dump {
    private static final int TIMES_PER_QUEUE = 12;

    private final DefaultMessageStore store;
    private final PrintStream out;
    private final boolean keepsKeys;
    private final Map<String, TreeSet<String>> keysOfTopics = new TreeMap<>();

    private Dump(DefaultMessageStore store, PrintStream out, boolean keepsKeys) {
        this.store = store;
        this.out = out;
        this.keepsKeys = keepsKeys;
    }

    public static void main(String[] args) {
        int code = 1;
        try {
            dump(args);
            code = 0;
        } catch (Throwable why) {
            why.printStackTrace();
        }
        // No shutdown: the store was never started, and must not change further.
        Runtime.getRuntime().halt(code);
    }

    private static void dump(String[] args) throws Exception {
        DefaultMessageStore store = open(Path.of(args[0]));
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ does not load this store");
        }
        // To most questions a store that was not started says that it is shut down.
        Field shutdown = DefaultMessageStore.class.getDeclaredField("shutdown");
        shutdown.setAccessible(true);
        shutdown.set(store, false);
        try (PrintStream out = new PrintStream(args[1], "US-ASCII")) {
            boolean onlyLog = args.length > 2 && args[2].equals("log");
            Dump dump = new Dump(store, out, !onlyLog);
            dump.units();
            if (!onlyLog) {
                dump.queues();
                dump.keys();
            }
        }
    }

    static DefaultMessageStore open(Path configuration) throws Exception {
        Properties properties = MixAll.string2Properties(Files.readString(configuration));
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        BrokerConfig brokerConfig = new BrokerConfig();
        MixAll.properties2Object(properties, storeConfig);
        MixAll.properties2Object(properties, brokerConfig);
        List<Object> known = List.of(storeConfig, brokerConfig, new BrokerStatsManager("interop", false),
            new ConcurrentHashMap<String, Object>());
        Constructor<?> constructor = DefaultMessageStore.class.getConstructors()[0];
        Object[] arguments = Arrays.stream(constructor.getParameterTypes())
            .map(type -> known.stream().filter(type::isInstance).findFirst().orElse(null))
            .toArray();
        return (DefaultMessageStore) constructor.newInstance(arguments);
    }

    /** The last of three of checkMessageAndReturnSize: 4.9 asks whether to read the body, 5.x whether to check for duplicates. */
    static boolean lastArgument() {
        return Arrays.stream(CommitLog.class.getMethods())
            .noneMatch(m -> m.getName().equals("checkMessageAndReturnSize") && m.getParameterCount() == 4);
    }

    private void units() {
        CommitLog log = store.getCommitLog();
        boolean last = lastArgument();
        long at = store.getMinPhyOffset();
        long end = store.getMaxPhyOffset();
        out.println(Json.object("kind", "log", "start", at, "end", end));
        while (at < end) {
            SelectMappedBufferResult found = log.getData(at, true);
            if (found == null) {
                throw new IllegalStateException("no data at " + at);
            }
            ByteBuffer data = found.getByteBuffer();
            long next = -1;
            while (data.hasRemaining()) {
                int start = data.position();
                DispatchRequest request = log.checkMessageAndReturnSize(data, true, last);
                if (request.isSuccess() && request.getMsgSize() > 0) {
                    int size = request.getMsgSize();
                    ByteBuffer unit = data.duplicate();
                    unit.position(start).limit(start + size);
                    unit(unit.slice());
                    data.position(start + size);
                    at += size;
                } else if (request.isSuccess()) {
                    next = log.rollNextFile(at);
                    break;
                } else {
                    throw new IllegalStateException("no unit at " + at);
                }
            }
            found.release();
            at = Math.max(at, next);
        }
    }

    private void unit(ByteBuffer unit) {
        MessageExt stored = MessageDecoder.decode(unit.duplicate(), true, false);
        MessageExt plain = MessageDecoder.decode(unit.duplicate(), true, true);
        if (Messages.length(stored.getBody()) > 0 && UtilAll.crc32(stored.getBody()) != stored.getBodyCRC()) {
            throw new IllegalStateException("wrong CRC at " + stored.getCommitLogOffset());
        }
        out.println(Messages.unit(stored, plain));
        if (!keepsKeys) {
            return;
        }
        TreeSet<String> keys = keysOfTopics.computeIfAbsent(stored.getTopic(), topic -> new TreeSet<>());
        String id = stored.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (id != null) {
            keys.add(id);
        }
        if (stored.getKeys() != null) {
            for (String key : stored.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    keys.add(key);
                }
            }
        }
    }

    private void queues() throws Exception {
        Map<String, TreeSet<Integer>> queues = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, table) -> queues.put(topic, new TreeSet<>(table.keySet())));
        for (Map.Entry<String, TreeSet<Integer>> topic : queues.entrySet()) {
            for (int queueId : topic.getValue()) {
                queue(topic.getKey(), queueId);
            }
        }
    }

    private void queue(String topic, int queueId) throws Exception {
        ConsumeQueue queue = (ConsumeQueue) store.findConsumeQueue(topic, queueId);
        long min = store.getMinOffsetInQueue(topic, queueId);
        long max = store.getMaxOffsetInQueue(topic, queueId);
        out.println(Json.object("kind", "queue", "topic", topic, "queueId", queueId, "min", min, "max", max));
        TreeSet<Long> times = new TreeSet<>();
        for (long at = min; at < max;) {
            SelectMappedBufferResult units = queue.getIndexBuffer(at);
            ByteBuffer data = units.getByteBuffer();
            for (; data.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE && at < max; at++) {
                long position = data.getLong();
                int size = data.getInt();
                out.println(Json.object("kind", "queueUnit", "topic", topic, "queueId", queueId, "queueOffset", at,
                    "commitLogOffset", position, "storeSize", size, "tagsCode", data.getLong()));
                times.add(store.getCommitLog().pickupStoreTimestamp(position, size));
            }
            units.release();
        }
        if (!times.isEmpty()) {
            times(topic, queueId, new ArrayList<>(times));
        }
    }

    /** The offsets for some of these times, and for those beside them. */
    private void times(String topic, int queueId, List<Long> all) {
        TreeSet<Long> asked = new TreeSet<>(List.of(0L, all.get(0) - 1, all.get(all.size() - 1) + 1));
        for (int i = 0; i < TIMES_PER_QUEUE; i++) {
            long time = all.get(i * (all.size() - 1) / (TIMES_PER_QUEUE - 1));
            asked.addAll(List.of(time - 1, time, time + 1));
        }
        for (long time : asked) {
            out.println(Json.object("kind", "time", "topic", topic, "queueId", queueId, "timestamp", time,
                "queueOffset", store.getOffsetInQueueByTime(topic, queueId, time)));
        }
    }

    /** What the index says to every key: unchecked, so with what only has the same hash. */
    private void keys() throws Exception {
        for (Map.Entry<String, TreeSet<String>> topic : keysOfTopics.entrySet()) {
            for (String key : topic.getValue()) {
                Map<Long, Boolean> found = new LinkedHashMap<>();
                for (ByteBuffer unit : store.queryMessage(topic.getKey(), key, 1000, 0, Long.MAX_VALUE)
                    .getMessageBufferList()) {
                    found.put(MessageDecoder.decode(unit, false).getCommitLogOffset(), true);
                }
                out.println(Json.object("kind", "key", "topic", topic.getKey(), "key", key, "commitLogOffsets",
                    new TreeSet<>(found.keySet())));
            }
        }
    }
}
