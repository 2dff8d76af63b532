import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's own MessageDecoder over a mapped log, on this one thread. Arguments: the segments.
 *
 * <p>For every line on standard input, "on" or "off" (whether to check the CRC) or "decompress" (which checks it, too), it
 * decodes all units once: bodies copied, not decompressed but for "decompress", properties parsed into a map. What it answers, one line of JSON, depends on every message.
 * In one process, so that the JVM compiles in the first passes and is measured in later ones.
 */
public final class DecodeLog {
    private static final int UNIT_MAGIC_V1 = 0xDAA320A7;
    private static final int UNIT_MAGIC_V2 = 0xDAA320A3;

    /** Where every message is put for all to see, lest the JVM leaves out what nobody looks at. */
    private static final AtomicReference<MessageExt> SEEN = new AtomicReference<>();

    private long messages;
    private long bodyBytes;
    private long properties;
    private long queueOffsets;
    private long storeTimes;
    private long idChars;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // RocketMQ's logging talks there
        List<ByteBuffer> segments = new ArrayList<>();
        for (String path : args) {
            try (FileChannel channel = FileChannel.open(Path.of(path), StandardOpenOption.READ)) {
                segments.add(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()));
            }
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            DecodeLog pass = new DecodeLog();
            long begin = System.nanoTime();
            for (ByteBuffer segment : segments) {
                pass.decode(segment.duplicate().order(ByteOrder.BIG_ENDIAN), !line.equals("off"), line.equals("decompress"));
            }
            out.println(pass.toJson(System.nanoTime() - begin));
        }
    }

    private void decode(ByteBuffer segment, boolean checkCrc, boolean decompress) {
        while (segment.remaining() >= 8 && isUnit(segment.getInt(segment.position() + 4))) {
            int start = segment.position();
            MessageExt message = MessageDecoder.decode(segment, true, decompress, false, false, checkCrc);
            if (message == null || segment.position() != start + message.getStoreSize()) {
                throw new IllegalStateException("RocketMQ does not decode the unit at " + start);
            }
            SEEN.lazySet(message); // without a fence
            messages++;
            bodyBytes += message.getBody() == null ? 0 : message.getBody().length;
            properties += message.getProperties().size();
            queueOffsets += message.getQueueOffset();
            storeTimes += message.getStoreTimestamp();
            idChars += message.getMsgId().length();
        }
    }

    private static boolean isUnit(int magic) {
        return magic == UNIT_MAGIC_V1 || magic == UNIT_MAGIC_V2;
    }

    private String toJson(long nanoseconds) {
        return String.format(
            "{\"nanoseconds\": %d, \"messages\": %d, \"bodyBytes\": %d, \"properties\": %d, \"queueOffsets\": %d, "
                + "\"storeTimes\": %d, \"idChars\": %d}",
            nanoseconds, messages, bodyBytes, properties, queueOffsets, storeTimes, idChars);
    }
}
