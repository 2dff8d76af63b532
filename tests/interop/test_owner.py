"""A store of another user that root has written to stays that user's, whose brokers go on with it."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import subprocess
from pathlib import Path

import pytest
from oracle import reference
from support import writing

import rmqstore_spark
from interop import rocketmq
from interop.accept import assert_broker_accepts
from interop.child import User
from interop.ours import BENCH, SIZES, SMALL, rows, small_store
from interop.rocketmq import NEWEST, Broker, usually
from rmqstore_spark.store.format.sizes import Sizes

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.parametrize("version", usually(NEWEST)),
]


@pytest.fixture
def user(real: None, public_path: Path) -> User:
    """One that has no other files, is in no other group, and has no name either."""
    if os.geteuid() != 0:
        pytest.skip("only root can write to the store of another user, and run its broker")
    user = User(47_101, 47_102, public_path / "jars")
    java = rocketmq.runtime(NEWEST).java
    try:
        command = [java, "-version"]
        subprocess.run(command, user=user.uid, group=user.gid, extra_groups=[], capture_output=True, check=True)
    except PermissionError:
        pytest.skip(f"{java}: cannot be run by another user")
    return user


@pytest.fixture
def root(user: User, public_path: Path) -> Path:
    """An empty directory of this user."""
    root = public_path / "store"
    root.mkdir(mode=0o750)
    os.chown(root, user.uid, user.gid)
    return root


def assert_owned(root: Path, user: User) -> None:
    # Without its lock a broker does not start. What else is not its own it notices when it wants to make files there.
    found = {path: (path.stat().st_uid, path.stat().st_gid) for path in (root, *root.rglob("*"))}
    assert {path: owner for path, owner in found.items() if owner != (user.uid, user.gid)} == {}


def assert_accepted(root: Path, user: User, version: str, sizes: rocketmq.Sizes) -> None:
    assert_owned(root, user)
    home = root.parent / f"home-of-{root.name}"
    assert_broker_accepts(root, home, [version], sizes=sizes, user=user, restart=False)


def test_a_new_store(root: Path, user: User, rng: random.Random, version: str) -> None:
    small_store(root, rng)
    assert_accepted(root, user, version, SMALL)


def test_one_that_its_broker_wrote_and_we_appended_to_and_rebuilt(
    root: Path, user: User, rng: random.Random, version: str
) -> None:
    with Broker(version, root, root.parent / "broker", BENCH, user=user) as broker:
        client = broker.client()
        client.run("create", "TopicA", 2)
        for queue_id in range(2):
            client.run("send", "TopicA", queue_id, 20, secrets.token_hex(4))
    before = reference.read_store(root)
    writing.write(root, rows(rng, 200), rows(rng, 50, "TopicA"), sizes=Sizes())
    assert len(reference.read_store(root)) == len(before) + 250

    rebuilt = rocketmq.copy_store(root, root.parent / "rebuilt")
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(rebuilt / name)
    (rebuilt / "checkpoint").unlink()
    rmqstore_spark.rebuild(
        rebuilt,
        mappedFileSizeConsumeQueue=SIZES.queue_file,
        maxHashSlotNum=SIZES.slots,
        maxIndexNum=SIZES.items,
    )
    assert_owned(root, user)  # that a broker goes on with such a one, test_writing.py shows
    assert_accepted(rebuilt, user, version, BENCH)
