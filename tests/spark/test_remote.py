"""Spark reads a store in a bucket as one on a disk, and secrets reach the workers and nobody who looks on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import golden
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.s3_server import ACCESS_KEY, SECRET_KEY, Server

import rmqstore_spark
from rmqstore_spark.spark.hadoop import options_of

pytestmark = pytest.mark.spark

URI = "s3a://stores/broker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("bucket")
    golden.unpack(golden.VERSIONS[-1], root / "broker")
    with Server(root) as running:
        yield running


def load(spark: SparkSession, server: Server, uri: str = URI, **options: Any) -> Any:
    return spark.read.format("rmqstore").options(**server.options, **options).load(uri)


def test_messages_and_tables(spark: SparkSession, server: Server) -> None:
    here = rmqstore_spark.Store(server.root / "broker")
    columns = ["topic", "queueId", "queueOffset", "body", "commitLogOffset"]
    expected = here.messages(columns=columns).read_all().to_pylist()
    found = load(spark, server, minPartitions=4).select(*columns).orderBy("commitLogOffset").toArrow().to_pylist()
    assert found == expected
    topic = expected[0]["topic"]
    assert load(spark, server, subscribe=topic).count() == sum(row["topic"] == topic for row in expected)
    assert load(spark, server, table="topics").count() == here.topics().num_rows


def test_what_goes_wrong(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as error:
        load(spark, server, f"{URI}/nothing").collect()
    assert f"{URI}/nothing: no such directory" in str(error.value)
    shutil.copytree(server.root / "broker", server.root / "changing")
    df = load(spark, server, "s3a://stores/changing")
    assert df.count()
    segment = sorted((server.root / "changing" / "commitlog").iterdir())[0]
    segment.write_bytes(segment.read_bytes())
    with pytest.raises(PySparkException) as error:
        df.collect()
    assert "the object was replaced since the read was planned; load the store again" in str(error.value)
    with pytest.raises(PySparkException) as error:
        df.write.format("rmqstore").mode("append").options(**server.options).save(URI)
    assert f"{URI}: a store there can only be read" in str(error.value)
    assert SECRET_KEY not in str(error.value)


def test_secrets_are_shown_nowhere(
    spark: SparkSession, server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In no plan, and in no event that Spark tells its listeners, which is what event logs and the UI are made of."""
    sc: Any = spark.sparkContext
    jvm = sc._jvm
    events = tmp_path / "events"
    events.mkdir()
    config = sc._jsc.sc().getConf().clone().set("spark.eventLog.compress", "false")
    hadoop = sc._jsc.sc().hadoopConfiguration()
    none = jvm.scala.Option.apply(None)
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", none, jvm.java.net.URI(events.as_uri()), config, hadoop
    )
    listener.start()
    sc._jsc.sc().addSparkListener(listener)
    df = load(spark, server)
    df.createOrReplaceTempView("remote")
    try:
        for frame in (df.select("topic"), spark.sql("SELECT topic FROM remote WHERE queueId = 0")):
            frame.collect()
            frame.explain(True)
            plan = frame._jdf.queryExecution()
            texts = [plan.toString(), plan.analyzed().toJSON(), plan.executedPlan().toString(), repr(frame)]
            assert not [text for text in texts if SECRET_KEY in text]
    finally:
        sc._jsc.sc().listenerBus().waitUntilEmpty()
        sc._jsc.sc().removeSparkListener(listener)
        listener.stop()
        spark.catalog.dropTempView("remote")
    logged = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"SparkListenerSQLExecutionStart" in logged
    out = capfd.readouterr()
    # The access key's id is no secret, and Spark shows it.
    assert not [text for text in (logged, out.out.encode(), out.err.encode()) if SECRET_KEY.encode() in text]


def test_a_secret_that_spark_would_show(spark: SparkSession) -> None:
    for name in ("azure_storage_account_key", "google_service_account_key", "adls.account-key"):
        with pytest.raises(PySparkException) as error:
            spark.read.format("rmqstore").option(name, "MARKER").load("abfss://c@a.dfs.core.windows.net/x").collect()
        assert f"name it 'secret.{name}', of which Spark hides the value" in str(error.value)
        assert "MARKER" not in str(error.value)


def test_options_of_a_session(spark: SparkSession, server: Server) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    given = {
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": "wrong",
        "fs.s3a.bucket.stores.secret.key": SECRET_KEY,
        "fs.s3a.endpoint": server.options["aws_endpoint_url"].removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    before = {name: hadoop.get(name) for name in given}
    try:
        for name, value in given.items():
            hadoop.set(name, value)
        found = rmqstore_spark.storage_options(spark, "stores")
        assert found == server.options
        assert rmqstore_spark.storage_options(spark)["aws_secret_access_key"] == "wrong"
        assert spark.read.format("rmqstore").options(**found).load(URI).count()
    finally:
        for name, value in before.items():
            hadoop.unset(name) if value is None else hadoop.set(name, value)


def test_what_hadoops_options_mean() -> None:
    assert options_of({}) == {}
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert options_of({"aws.credentials.provider": provider}) == {"aws_skip_signature": "true"}
    assert options_of({"endpoint": "s3.example.com", "path.style.access": "false"}) == {
        "aws_endpoint_url": "https://s3.example.com",
        "aws_virtual_hosted_style_request": "true",
    }
