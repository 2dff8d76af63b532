"""Sends dead letters, or other waiting messages, to their own topics again: Apache's Python client, a proxy of 5.x.

pip install rocketmq-python-client  (and rmqstore-spark, as docs/first-steps.md says)
python examples/send_again.py STORE ENDPOINTS '%DLQ%GROUP' [--key KEY] [--send]

STORE is only read, and may be that of a running broker or a copy of it; ENDPOINTS are those of the proxy, such as
127.0.0.1:8081. Without --send it shows what it would send. All consumer groups of a topic get what is sent, not only
the one that gave up.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rmqstore_spark import Store

# Properties that the client has words of its own for, or makes itself; others of these are for Java's client.
OF_CLIENTS = {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"}
FIFO = "__SHARDINGKEY"
COLUMNS = ["topic", "keys", "tags", "properties", "body", "msgId", "commitLogOffset"]


def message_of(row: dict[str, Any]) -> Any:
    """A message for the client. It is sent at once, even if it was a delayed one."""
    from rocketmq import Message

    properties = dict(row["properties"])
    message = Message()
    message.topic, message.body = row["topic"], row["body"]
    if row["tags"]:
        message.tag = row["tags"]
    for key in (row["keys"] or "").split():
        message.keys = key
    if FIFO in properties:
        message.message_group = properties[FIFO]
    for name, value in properties.items():
        if name not in OF_CLIENTS | {FIFO}:
            message.add_property(name, value)
    return message


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description="Send waiting messages to their own topics again.")
    parser.add_argument("store")
    parser.add_argument("endpoints")
    parser.add_argument("topic", help="where they wait, such as %%DLQ%%GROUP")
    parser.add_argument("--key")
    parser.add_argument("--send", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Send them, one after the other; the first that fails ends it, and says where to go on."""
    asked = arguments()
    store = Store(asked.store)
    batches = store.messages(columns=COLUMNS, asOriginal=True, subscribe=asked.topic, key=asked.key)
    rows = (row for batch in batches for row in batch.to_pylist())
    if not asked.send:
        for row in rows:
            print(f"would send {row['msgId']} to {row['topic']}: keys {row['keys']}, tags {row['tags']}")
        return 0
    return send(rows, asked.endpoints)


def send(rows: Any, endpoints: str) -> int:
    """Send rows of messages. The exit code."""
    from rocketmq import ClientConfiguration, Credentials, Producer

    producer = Producer(ClientConfiguration(endpoints, Credentials()))
    producer.startup()
    sent, row = 0, None
    try:
        for row in rows:
            receipt = producer.send(message_of(row))
            sent += 1
            print(f"{row['msgId']} is now {receipt.message_id} in {row['topic']}")
    except Exception as why:
        at = row and row["commitLogOffset"]
        print(f"{sent} sent; the message at commitLogOffset {at} was not: {why}", file=sys.stderr)
        return 1
    finally:
        producer.shutdown()
    print(f"{sent} sent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
