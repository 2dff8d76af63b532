import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own consumers drain a broker's topics. Arguments: the address of the namesrv, how many consumers, and the
 * topics.
 *
 * <p>For every line on standard input, the number of messages there are, new consumers with a thread each poll all
 * queues from their first message to their last. What is answered, one line of JSON, depends on each message's body and
 * properties. Time counts from when the first poll has messages.
 */
public final class ConsumeLog {
    private static final int PULL_BATCH_SIZE = 32; // the most that a broker hands out at a time, unless it is told
    private static final long SILENCE_NANOSECONDS = 30_000_000_000L; // when nothing more is expected
    private static final int ROUTE_TRIES = 300;

    private final AtomicLong left;
    private final AtomicLong begin = new AtomicLong();
    private final AtomicLong end = new AtomicLong(System.nanoTime()); // when the last messages have come so far

    private ConsumeLog(long messages) {
        left = new AtomicLong(messages);
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // RocketMQ's logging talks there
        List<String> topics = Arrays.asList(args).subList(2, args.length);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        int passes = 0;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ConsumeLog pass = new ConsumeLog(Long.parseLong(line));
            out.println(pass.drain(args[0], Integer.parseInt(args[1]), topics, "bench-" + passes++));
        }
        Runtime.getRuntime().halt(0); // its threads may still be closing connections
    }

    private String drain(String namesrv, int count, List<String> topics, String name) throws Exception {
        List<DefaultLitePullConsumer> consumers = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(count);
        try {
            List<Collection<MessageQueue>> shares = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                consumers.add(consumer(namesrv, name + "-" + i));
                shares.add(new ArrayList<>());
            }
            int next = 0;
            for (String topic : topics) {
                for (MessageQueue queue : queues(consumers.get(0), topic)) {
                    shares.get(next++ % count).add(queue);
                }
            }
            List<Future<Totals>> parts = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                DefaultLitePullConsumer consumer = consumers.get(i);
                consumer.assign(shares.get(i));
                parts.add(threads.submit(() -> poll(consumer)));
            }
            Totals totals = new Totals();
            for (Future<Totals> part : parts) {
                totals.add(part.get());
            }
            return totals.toJson(end.get() - begin.get());
        } finally {
            threads.shutdownNow();
            consumers.forEach(DefaultLitePullConsumer::shutdown);
        }
    }

    private static DefaultLitePullConsumer consumer(String namesrv, String group) throws MQClientException {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group); // else consumers of one process share their connections
        consumer.setPullBatchSize(PULL_BATCH_SIZE);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET); // a new group has no offsets
        consumer.start();
        return consumer;
    }

    /** As soon as the namesrv knows them: some brokers take a while to announce themselves. */
    private static Collection<MessageQueue> queues(DefaultLitePullConsumer consumer, String topic) throws Exception {
        for (int i = 0;; i++) {
            try {
                return consumer.fetchMessageQueues(topic);
            } catch (MQClientException why) {
                if (i == ROUTE_TRIES) {
                    throw why;
                }
                Thread.sleep(100);
            }
        }
    }

    private Totals poll(DefaultLitePullConsumer consumer) {
        Totals totals = new Totals();
        while (left.get() > 0 && System.nanoTime() - end.get() < SILENCE_NANOSECONDS) {
            List<MessageExt> messages = consumer.poll(100);
            if (!messages.isEmpty()) {
                begin.compareAndSet(0, System.nanoTime());
                messages.forEach(totals::add);
                left.addAndGet(-messages.size());
                end.set(System.nanoTime());
            }
        }
        return totals;
    }

    /** What depends on every message that was polled. */
    private static final class Totals {
        private long messages;
        private long bodyBytes;
        private long properties;
        private long queueOffsets;
        private long storeTimes;

        void add(MessageExt message) {
            messages++;
            bodyBytes += message.getBody() == null ? 0 : message.getBody().length;
            properties += message.getProperties().size();
            queueOffsets += message.getQueueOffset();
            storeTimes += message.getStoreTimestamp();
        }

        void add(Totals other) {
            messages += other.messages;
            bodyBytes += other.bodyBytes;
            properties += other.properties;
            queueOffsets += other.queueOffsets;
            storeTimes += other.storeTimes;
        }

        String toJson(long nanoseconds) {
            return String.format(
                "{\"nanoseconds\": %d, \"messages\": %d, \"bodyBytes\": %d, \"properties\": %d, "
                    + "\"queueOffsets\": %d, \"storeTimes\": %d}",
                nanoseconds, messages, bodyBytes, properties, queueOffsets, storeTimes);
        }
    }
}
