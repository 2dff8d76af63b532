package interop;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;

/**
 * Sends from several threads, messages of all sizes; tells of each as soon as it is acknowledged. With a file, it tells
 * there: 8 bytes of the physical offset and 8 of the body's CRC-32; and sends more of the large ones, with a pause after
 * each message.
 */
final class Stream {
    private static final int THREADS = 3;

    private final DefaultMQProducer producer;
    private final String topic;
    private final long millis;
    private final long seed;
    private final OutputStream file;
    private final long pause;

    /** `words`: of the command "stream TOPIC MILLIS SEED [FILE PAUSE]", the pause in milliseconds. */
    Stream(DefaultMQProducer producer, String[] words) throws IOException {
        this.producer = producer;
        topic = words[1];
        millis = Long.parseLong(words[2]);
        seed = Long.parseLong(words[3]);
        file = words.length > 4 ? new FileOutputStream(words[4], true) : null;
        pause = words.length > 5 ? Long.parseLong(words[5]) : 1;
    }

    void run() throws Exception {
        long end = System.currentTimeMillis() + millis;
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Random random = new Random(seed + i);
            int ofSoMany = file == null ? 50 : 10;
            String name = "stream-" + i;
            threads.add(new Thread(() -> {
                try {
                    for (int n = 0; System.currentTimeMillis() < end && failure.get() == null; n++) {
                        Message message = new Message(topic, "tag" + n % 3, name + "-" + n, body(random, ofSoMany));
                        acknowledged(message, producer.send(message));
                        if (pause > 0) {
                            Thread.sleep(pause);
                        }
                    }
                } catch (Exception why) {
                    failure.set(why);
                }
            }, name));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private void acknowledged(Message message, SendResult result) throws Exception {
        if (file == null) {
            Client.acknowledged("stream", message, result);
            return;
        }
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        ByteBuffer record = ByteBuffer.allocate(16);
        record.putLong(MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset()).putLong(crc.getValue());
        file.write(record.array()); // one call of the system: all of it or nothing, if this process is killed
    }

    /** One of so many is a large one. */
    private static byte[] body(Random random, int ofSoMany) {
        int size = random.nextInt(ofSoMany) == 0 ? 60_000 + random.nextInt(60_000) : 1 + random.nextInt(3_000);
        byte[] body = new byte[size];
        random.nextBytes(body);
        return body;
    }
}
