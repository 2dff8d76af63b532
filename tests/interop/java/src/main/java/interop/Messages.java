package interop;

import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages as JSON, in the columns of the data source. */
final class Messages {
    private Messages() {
    }

    /** `stored` has the body as it lies in the log, `plain` the one that a consumer gets. */
    static String unit(MessageExt stored, MessageExt plain) {
        return Json.object(
            "kind", "unit",
            "topic", stored.getTopic(),
            "queueId", stored.getQueueId(),
            "queueOffset", stored.getQueueOffset(),
            "tags", stored.getTags(),
            "keys", stored.getKeys(),
            "msgId", stored.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
            "offsetMsgId", stored.getMsgId(),
            "body", sha256(plain.getBody()),
            "bodyLength", length(plain.getBody()),
            "storedBody", sha256(stored.getBody()),
            "storedBodyLength", length(stored.getBody()),
            "properties", new TreeMap<>(stored.getProperties()),
            "flag", stored.getFlag(),
            "sysFlag", stored.getSysFlag(),
            "bornTimestamp", stored.getBornTimestamp(),
            "bornHost", host(stored.getBornHost()),
            "storeTimestamp", stored.getStoreTimestamp(),
            "storeHost", host(stored.getStoreHost()),
            "reconsumeTimes", stored.getReconsumeTimes(),
            "preparedTransactionOffset", stored.getPreparedTransactionOffset(),
            "commitLogOffset", stored.getCommitLogOffset(),
            "storeSize", stored.getStoreSize(),
            "bodyCRC", stored.getBodyCRC());
    }

    /** As a consumer receives it. */
    static String received(MessageExt message) {
        return Json.object(
            "kind", "message",
            "topic", message.getTopic(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "commitLogOffset", message.getCommitLogOffset(),
            "storeSize", message.getStoreSize(),
            "body", sha256(message.getBody()),
            "properties", new TreeMap<>(message.getProperties()),
            "flag", message.getFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "bornHost", host(message.getBornHost()),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", host(message.getStoreHost()),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset());
    }

    static int length(byte[] body) {
        return body == null ? 0 : body.length;
    }

    static String sha256(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body == null ? new byte[0] : body);
            return String.format("%064x", new BigInteger(1, digest));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
