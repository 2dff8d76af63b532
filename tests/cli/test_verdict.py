"""`rmqstore check` begins with an answer, and ends with commands that mend the store when they are pasted in order."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support.command import run
from tables.test_check import PLANTED, Planted, planted_noise_in_log

from rmqstore_spark import Store
from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.cli.commands.check import Found
from rmqstore_spark.cli.findings import show_findings
from rmqstore_spark.cli.reading import batches_of
from rmqstore_spark.jobs.findings import Findings
from rmqstore_spark.jobs.verdict import verdict
from rmqstore_spark.store.logs import find_logs
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.check.problems import PROBLEMS, Effect, Fix

BY_HAND = {Fix.RESTORE, Fix.ADMIN}  # what no command can do


def problems(store: Path) -> set[str]:
    return {row["problem"] for row in Store(store).check().to_pylist() if row["severity"] != "info"}


def pasted(commands: list[str]) -> Path | None:
    """Run the commands; the store that they have made, if any."""
    made = None
    for command in commands:
        words = shlex.split(command, comments=True)
        if not words:
            continue
        if words[0] != "rmqstore":
            subprocess.run(["sh", "-c", command], check=True)
            continue
        assert command.startswith(shlex.join(words)), "a shell would read it differently"
        ran = run(*words[1:])
        is_salvage = words[1] == "salvage"
        may_lose = is_salvage or words[-1] == "--config"
        assert ran.code in ((0, 1) if may_lose else (0,)), (command, ran)
        made = Path(words[3]) if is_salvage else made
    return made


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("planted_"))
def test_commands_mend_the_store(plant: Callable[[Planted], Iterator[tuple[Any, ...]]], tmp_path: Path) -> None:
    store = Planted(tmp_path / "store")
    planted = {finding[0] for finding in plant(store)}
    found = Store(store.root).check().to_pylist()
    answer = verdict(Findings.of(found), str(store.root))
    made = pasted(answer.commands)
    left = {name for name in problems(made or store.root) if PROBLEMS[name].fix not in BY_HAND}
    assert left == set(), (planted, answer)


@pytest.mark.parametrize(
    ("found", "text", "is_good"),
    [
        ([], "A broker will start on this store and serve every message.", True),
        (
            [("abort", 1)],
            "A broker will start on this store and serve every message; also mend abort: 1 finding.",
            True,
        ),
        ([("longTopic", 3)], "A broker of 5.1.0 or later will start on this store and serve every message.", True),
        (
            [("missingQueueUnit", 2), ("missingQueueUnit", 5), ("strayFile", 1)],
            "Most brokers will not start on this store (strayFile: 1 finding), and consumers do not get messages that "
            "the log has (missingQueueUnit: 7 messages in 2 places).",
            False,
        ),
        (
            [("damagedUnit", 120), ("queueGap", 3)],
            "A broker will start on this store, but messages are damaged or missing (damagedUnit: 120 bytes), and a "
            "broker that recovers deletes everything after them; messages are lost (queueGap: 3 messages).",
            False,
        ),
        (
            [("damagedUnit", 120), ("lostMessages", 1)],
            "A broker will start on this store, but 1 message is damaged or missing (damagedUnit: 120 bytes), and a "
            "broker that recovers deletes everything after them.",
            False,
        ),
        (
            [("damagedUnit", 120), ("lostMessages", 2), ("lostMessages", 1), ("missingSegment", 1)],
            "A broker will start on this store, but 3 messages are damaged or missing (damagedUnit: 120 bytes, "
            "missingSegment: 1 segment), and a broker that recovers deletes everything after them.",
            False,
        ),
        (
            [("missingIndexItem", 1)],
            "A broker will start on this store and serve every message, but look-ups by key miss messages "
            "(missingIndexItem: 1 item).",
            False,
        ),
        (
            [("notLookedAt", 1)],
            "Cannot tell: /s/file was not looked at. Nothing is wrong in what was checked.",
            False,
        ),
        (
            [("notLookedAt", 1), ("noQueues", 1)],
            "Cannot tell: /s/file was not looked at. Of what was checked: a broker will start on this store, but "
            "consumers do not get messages that the log has (noQueues: 1 finding).",
            False,
        ),
    ],
)
def test_sentences(found: list[tuple[str, int]], text: str, is_good: bool) -> None:
    rows = [
        {"problem": name, "severity": PROBLEMS[name].severity, "file": "/s/file", "found": None, "count": count}
        for name, count in found
    ]
    answer = verdict(Findings.of(rows), "/s")
    assert (answer.text, answer.is_good) == (text, is_good)


@pytest.mark.parametrize(
    ("gone", "count"), [(None, "9 messages are"), ("0", "at least 5 messages are"), (".", "messages are")]
)
def test_messages_that_are_lost_are_named(gone: str | None, count: str, tmp_path: Path) -> None:
    """By topic, queue and offsets, as far as queues are left."""
    store = Planted(tmp_path / "store")
    list(planted_noise_in_log(store))
    if gone is not None:
        shutil.rmtree(store.root / "consumequeue" / "TopicA" / gone)
    ran = run("check", store.root)
    assert f"but {count} damaged or missing (damagedUnit: " in " ".join(ran.out.split())
    lost = [line.strip() for line in ran.out.splitlines() if line.startswith("  topic ")]
    assert lost == [
        *(["topic TopicA, queueId 0, queueOffset 2 to 5 (4 messages)"] if gone is None else []),
        *(["topic TopicA, queueId 1, queueOffset 1 to 5 (5 messages)"] if gone != "." else []),
    ]


def test_every_problem_that_is_serious_has_an_effect_and_a_cure() -> None:
    for name, problem in PROBLEMS.items():
        is_found = bool(problem.advice) and problem.severity != "info"
        assert (problem.fix is not Fix.NONE) == is_found, f"{name}: a fix goes with advice, but not where it is info"
        assert problem.effect is Effect.NOTHING or problem.severity != "info", f"{name}: info has no effect"
        needs_effect = is_found and problem.severity == "error" and name != "checkpointAhead"  # until a crash
        assert problem.effect is not Effect.NOTHING or not needs_effect, f"{name}: what does it mean for a broker?"


def test_names_that_a_shell_would_take_apart() -> None:
    row = {"problem": "strayFile", "severity": "warning", "file": "/a b/$(x)'; rm", "count": 1}
    (command,) = verdict(Findings.of([row]), "/a b").commands
    assert shlex.split(command) == [
        *("mkdir", "-p", "/a b-aside", "&&", "mv", "-n", "/a b/$(x)'; rm", "/a b-aside/"),
    ]


def test_a_remote_store_is_copied_first() -> None:
    row = {"problem": "noQueues", "severity": "error", "file": "s3://b/store/consumequeue", "count": 1}
    (command,) = verdict(Findings.of([row]), "s3://b/store").commands
    assert command.startswith("rmqstore copy s3://b/store store-copy")


def test_a_store_that_is_not_written_to_is_copied(tmp_path: Path) -> None:
    """DLedger: what `rebuild` would mend elsewhere, a copy has."""
    builder = DLedgerStoreBuilder(tmp_path / "store", index=True)
    for number in range(40):
        builder.append(keys=f"k{number}")
    builder.close()
    (lost, *_) = (tmp_path / "store" / "consumequeue").glob("*/*/*")
    lost.unlink()
    assert run("rebuild", builder.root).code != 0
    ran = run("check", builder.root)
    command = ran.out.splitlines()[-1]
    assert command.startswith(f"rmqstore copy {builder.root} {builder.root}-copy"), ran.out
    assert pasted([command]) is None
    assert problems(tmp_path / "store-copy") == set()


def test_a_screen(tmp_path: Path) -> None:
    """The answer first, the commands last, and none of it calls Python."""
    store = Planted(tmp_path / "store")
    shutil.rmtree(store.root / "consumequeue")
    ran = run("check", store.root)
    lines = ran.out.splitlines()
    assert ran.code == 1
    assert lines[0].startswith("A broker will start on this store, but consumers do not get messages that the log has")
    assert any(line.startswith("checked: 18.7 KiB of log in 3 segments, 60 messages in 2 queues") for line in lines)
    assert lines[-2:] == ["to mend it:", f"rmqstore rebuild {store.root}"]
    assert "rmqstore_spark" not in ran.out


def test_a_store_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at is told of the same state that was checked."""
    opened: list[str] = []

    def counted(root: str, *rest: Any, **how: Any) -> list[Snapshot]:
        opened.append(root)
        return find_logs(root, *rest, **how)

    monkeypatch.setattr("rmqstore_spark.read.plan.stores.find_logs", counted)
    store = Planted(tmp_path / "store")
    ran = CliRunner().invoke(Rmqstore(), ["check", str(store.root)], standalone_mode=False)
    assert "checked: " in ran.stdout
    assert opened == [str(store.root)]


def test_as_many_findings_as_are_wanted(tmp_path: Path) -> None:
    """The first ones of each problem are held, the others wait in a file: so many may be wrong."""
    for name in ("one", "two"):
        builder = StoreBuilder(tmp_path / name, 1 << 20, 6000)
        for number in range(120):
            wrong: dict[str, Any] = {"body_crc": 7} if number % 2 else {}
            builder.append("T", b"x", keys=f"{name}-{number}", **wrong)
        builder.close()
    shown = {
        limit: run("check", tmp_path / "one", tmp_path / "two", *(["--limit", limit] if limit else [])).out.splitlines()
        for limit in ("", "0", "45")
    }
    places = {limit: [line for line in lines if "commitLogOffset" in line] for limit, lines in shown.items()}
    lost = {limit: sum("topic T, queueId 0" in line for line in lines) for limit, lines in shown.items()}
    assert (len(places[""]), len(places["0"]), len(set(places["0"]))) == (2 * 20, 2 * 60, 2 * 60)
    assert (lost[""], lost["0"]) == (2 * 20, 2 * 60)
    assert sum("/one/" in place for place in places["0"]) == 60
    assert len(places["45"]) + lost["45"] == 2 * 45
    assert "  ... and 15 more; --limit 0 shows all" in shown["45"]

    path = str(tmp_path / "one")
    names = batches_of("check", [path], {})[0].names
    schema, batches = batches_of("check", [path], {"columns": ",".join([*names, "store"])})
    found = Found(schema, batches, keeps_all=True)
    (of_store,) = found.by_store.values()
    assert max(len(each.rows) for each in of_store) == 20
    assert sum(len(batch) for batch in found.rows) == sum(each.count for each in of_store) == 120


def test_each_advice_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Findings of one problem may have several: what to do about lost timed messages is something else."""
    common = {"severity": "error", "problem": "lostMessages", "expected": "", "found": "none from 1 to 1", "count": 1}
    common |= dict.fromkeys(["file", "filePosition", "commitLogOffset"])
    queues = [("Orders", "skipped"), ("Orders", "skipped"), ("Timed", "never delivered")]
    rows = [{**common, "topic": t, "queueId": 0, "queueOffset": 1, "advice": a} for t, a in queues]
    show_findings(Findings.of(rows), None)
    assert capsys.readouterr().out.splitlines() == [
        "error lostMessages: 3 messages in 3 places  skipped",
        "  topic Orders, queueId 0, queueOffset 1 (1 message)",
        "  topic Orders, queueId 0, queueOffset 1 (1 message)",
        "never delivered",
        "  topic Timed, queueId 0, queueOffset 1 (1 message)",
    ]


def test_a_store_without_configuration() -> None:
    """No topic of it is served, which no other finding says."""
    row = {"problem": "noTopicConfig", "severity": "info", "file": "/s/config/topics.json", "found": "", "count": 1}
    answer = verdict(Findings.of([row]), "/s")
    assert answer.text.endswith("There is no config/topics.json: it serves a topic only once that is created anew.")
    assert answer.commands == ["rmqstore rebuild /s --config"]


def test_a_commitlog_elsewhere(tmp_path: Path) -> None:
    """Neither rebuild nor any other command finds it by itself: the command that is advised names it, and works."""
    store = Planted(tmp_path / "store")
    log = tmp_path / "the log"
    (store.root / "commitlog").rename(log)
    shutil.rmtree(store.root / "consumequeue")
    found = run("check", str(store.root), "--storePathCommitLog", str(log))
    (command,) = (line for line in found.out.splitlines() if line.startswith("rmqstore "))
    words = shlex.split(command, comments=True)
    assert words[1] == "copy"
    assert "run rmqstore copy" in found.out.replace("\n", " ")
    assert run(*words[1:]).code == 0
    assert problems(Path(words[3])) == set()
