"""A Kafka broker of one node on this machine that is written to, and Spark's own source, which reads it."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from measure import HERE
from pyspark.sql import DataFrame, SparkSession

POM = HERE / "java" / "kafka" / "pom.xml"
TOPIC = "Fresh"
_CLUSTER = "AAAAAAAAQACAAAAAAAAAAQ"  # any uuid, as Kafka writes them
_SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"


class Unavailable(Exception):
    """Why there is no Kafka to measure."""


class Kafka:
    """Runs while it is a context. Jars come from Maven the first time, as those of the interop tests.

    Args:
        spark: gets what its source needs, as long as it lives; the producer is in its JVM.
        home: a new directory for the broker's files.

    Raises:
        Unavailable: there is no Maven, no JDK, or no source for this version of Spark.
    """

    def __init__(self, spark: SparkSession, home: Path) -> None:
        sys.path.append(str(HERE.parent / "tests"))
        child, jars, rocketmq = (importlib.import_module(f"interop.{name}") for name in ("child", "jars", "rocketmq"))
        version = spark.version
        try:
            kept = jars.directory_of(POM, "kafka")
            broker = jars.class_path(kept / "broker.txt", "Kafka", POM, "-Pbroker")
            source = jars.class_path(
                kept / f"source-{version}.txt",
                f"Spark's Kafka source {version}",
                POM,
                "-Psource",
                f"-Dspark.version={version}",
            )
            self._java = [jars.java("java"), *child.SMALL_JVM, "-cp", broker]
        except jars.Unavailable as why:
            raise Unavailable(str(why)) from why
        of_spark = Path(pyspark.__file__).with_name("jars")
        for jar in source.split(os.pathsep):
            if not (of_spark / Path(jar).name).exists():
                spark.sql(f"ADD JAR '{jar}'")
        self._spark, self._home = spark, home
        self._process, self._free_ports = child.Process, rocketmq.free_ports

    def __enter__(self) -> Self:
        self._home.mkdir()
        with contextlib.ExitStack() as running:
            self._address = self._start(running)
            self._producer = self._connect()
            running.callback(self._producer.close)
            self.send("", "")  # waits until the broker serves, and makes the topic
            self._running = running.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def _start(self, running: contextlib.ExitStack) -> str:
        listener, controller = (f"127.0.0.1:{port}" for port in self._free_ports(2))
        given = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
            "log.dirs": self._home / "data",
        }
        settings = self._home / "server.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
        subprocess.run([*self._java, *format_], check=True, capture_output=True)
        command = [*self._java, "kafka.Kafka", str(settings)]
        broker = self._process("Kafka", command, self._home / "broker.log", {}, None)
        running.callback(broker.kill)
        return listener

    def _connect(self) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        given = jvm.java.util.HashMap()
        given.put("bootstrap.servers", self._address)
        given.put("key.serializer", _SERIALIZER)
        given.put("value.serializer", _SERIALIZER)
        self._record = jvm.org.apache.kafka.clients.producer.ProducerRecord
        return jvm.org.apache.kafka.clients.producer.KafkaProducer(given)

    def send(self, key: str, body: str) -> None:
        """Until it is acknowledged."""
        self._producer.send(self._record(TOPIC, key, body)).get()

    def stream(self) -> DataFrame:
        """What comes from now on."""
        source = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._address)
        return source.option("subscribe", TOPIC).load()
