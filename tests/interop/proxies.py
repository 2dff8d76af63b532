"""A real proxy of RocketMQ 5.x on loopback, through which clients of gRPC talk to a broker."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from interop.child import SMALL_JVM, ChildError, Process
from interop.jars import class_path, directory_of, java
from interop.rocketmq import Broker, free_ports

# A proxy ends where the name server does not know the broker yet, as on a busy machine: it is started again then.
_TOO_EARLY, _ATTEMPTS = "create system broadcast topic", 5
_POM = Path(__file__).parent / "proxy" / "pom.xml"


def jars(version: str) -> str:
    """The class path of a version's proxy.

    Raises:
        Unavailable: it is not cached, and cannot be had.
    """
    kept = directory_of(_POM, f"proxy-{version}") / "proxy.txt"
    return class_path(kept, f"the proxy of RocketMQ {version}", _POM, f"-Drocketmq.version={version}")


@contextlib.contextmanager
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
    with contextlib.ExitStack() as started:
        for attempt in range(_ATTEMPTS):
            log = home / f"proxy-{attempt}.log"
            process = Process(f"proxy {broker.version}", command, log, environment, None)
            started.callback(process.kill)
            try:
                process.wait_for("startup successfully")
                break
            except ChildError:
                if attempt + 1 == _ATTEMPTS or _TOO_EARLY not in log.read_text(errors="replace"):
                    raise
                time.sleep(attempt + 1)
        yield f"127.0.0.1:{grpc}"
