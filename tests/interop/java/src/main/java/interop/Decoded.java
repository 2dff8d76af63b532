package interop;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DispatchRequest;

/**
 * What RocketMQ itself says of bytes that may be a unit of the log. On stdin come rounds: their number, and the size and
 * the bytes of each (numbers have 4 bytes). Each gets a line: the size that a broker finds which recovers a log (-1: no
 * unit, or an exception), a tab, and what a client decodes, in the columns of the data source (empty: nothing); with a
 * body that is left as stored where that cannot be decompressed.
 */
public final class Decoded {
    private Decoded() {
    }

    /** The argument is the configuration file of a broker, whose store is not touched. */
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        System.setOut(System.err); // where logging says what it does
        CommitLog log = Dump.open(Path.of(args[0])).getCommitLog();
        boolean last = Dump.lastArgument();
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        while (true) {
            byte[][] round;
            try {
                round = new byte[in.readInt()][];
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0); // the store was never started
                return;
            }
            for (int at = 0; at < round.length; at++) {
                round[at] = new byte[in.readInt()];
                in.readFully(round[at]);
            }
            StringBuilder answers = new StringBuilder();
            for (byte[] unit : round) {
                answers.append(size(log, unit, last)).append('\t').append(decoded(unit)).append('\n');
            }
            out.print(answers);
            out.flush();
        }
    }

    private static int size(CommitLog log, byte[] unit, boolean last) {
        try {
            DispatchRequest found = log.checkMessageAndReturnSize(ByteBuffer.wrap(unit), true, last);
            return found.isSuccess() ? found.getMsgSize() : -1;
        } catch (RuntimeException | OutOfMemoryError refused) { // the latter where a length of 2 GB is believed
            return -1;
        }
    }

    private static String decoded(byte[] unit) {
        try {
            MessageExt stored = MessageDecoder.decode(ByteBuffer.wrap(unit), true, false);
            MessageExt plain = MessageDecoder.decode(ByteBuffer.wrap(unit), true, true);
            return stored == null ? "" : Messages.unit(stored, plain == null ? stored : plain);
        } catch (OutOfMemoryError refused) {
            return "";
        }
    }
}
