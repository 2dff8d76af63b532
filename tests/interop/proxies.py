"""A real proxy of RocketMQ 5.x on loopback, through which clients of gRPC talk to a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.child import SMALL_JVM, Process
from interop.jars import class_path, directory_of, java
from interop.rocketmq import Broker, free_ports

_POM = Path(__file__).parent / "proxy" / "pom.xml"


def jars(version: str) -> str:
    """The class path of a version's proxy.

    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    kept = directory_of(_POM, f"proxy-{version}") / "proxy.txt"
    return class_path(kept, f"the proxy of RocketMQ {version}", _POM, f"-Drocketmq.version={version}")


@contextmanager
def proxy_of(broker: Broker, home: Path) -> Iterator[str]:
    """The endpoints of a proxy in front of a broker of its version.

    Args:
        home: for its log and its configuration.

    Raises:
        Unavailable: as jars().
    """
    found = jars(broker.version)
    home.mkdir()
    grpc, remoting = free_ports(2)
    settings = {
        "rocketMQClusterName": "bench-cluster",
        "namesrvAddr": broker.namesrv_address,
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
    }
    (home / "proxy.json").write_text(json.dumps(settings))
    command = [java("java"), *SMALL_JVM, f"-Duser.home={home}", "-cp", found]
    command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(home / "proxy.json")]
    environment = {"RMQ_PROXY_HOME": str(home), "NAMESRV_ADDR": "", "JAVA_TOOL_OPTIONS": ""}
    process = Process(f"proxy {broker.version}", command, home / "proxy.log", environment, None)
    try:
        process.wait_for("startup successfully")
        yield f"127.0.0.1:{grpc}"
    finally:
        process.kill()
