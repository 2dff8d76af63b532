"""What the findings of a check come to: one sentence, and the commands that mend the store."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore_spark.amounts import size_text
from rmqstore_spark.errors import counted
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import index_paths
from rmqstore_spark.tables.check.lost import UNKNOWN
from rmqstore_spark.tables.check.problems import PROBLEMS, Effect, Fix
from rmqstore_spark.tables.queues import queue_facts

Row = Mapping[str, Any]

_SERIOUS = {"error", "warning"}
_AT_ONCE = 20  # files that are named
# The commands that are there for each of some files. `cp -n` and `mv -n` overwrite nothing.
_FOR_FILES = {
    Fix.MOVE: "mkdir -p {aside} && mv -n {files} {aside}/",
    Fix.OWN: "chown -h --reference={store}/commitlog {files}",
}
_FOR_EACH = {
    Fix.UNLINK: 'target=$(readlink -f {file}) && rm {file} && cp -a "$target" {file}',
}


@dataclass(frozen=True)
class Verdict:
    """What a check says about one store.

    Attributes:
        text: the answer, a sentence: will a broker start on the store, and serve every message?
        is_good: whether it will, as far as everything was looked at.
        commands: lines for a shell, in order, that mend the store; comments say what no command can do.
    """

    text: str
    is_good: bool
    commands: list[str]


def verdict(rows: Sequence[Row], store: str, is_tiered: bool = False, is_writable: bool = True) -> Verdict:
    """The verdict on a store.

    Args:
        rows: the findings of the table `check`: columns problem, severity, file, found, count.
        store: the store's path or URL.
        is_tiered: whether the store is a tiered one, on which no broker starts.
        is_writable: whether its queues and index can be made anew in their place (kinds.is_writable).
    """
    serious = [row for row in rows if row["severity"] in _SERIOUS]
    unseen = [row for row in rows if row["problem"] == "notLookedAt"]
    by_effect: dict[Effect, list[Row]] = {effect: [] for effect in Effect}
    for row in serious:
        by_effect[PROBLEMS[row["problem"]].effect].append(row)
    text = _sentence(by_effect, is_tiered)
    if any(row["problem"] == "longTopic" for row in rows):
        text = text.replace("A broker will", "A broker of 5.1.0 or later will")
    if unseen:
        places = ", ".join(dict.fromkeys(str(row["file"]) for row in unseen))
        known = (
            f"Of what was checked: {text[0].lower()}{text[1:]}" if serious else "Nothing is wrong in what was checked."
        )
        text = f"Cannot tell: {places} was not looked at. {known}"
    is_good = not unseen and all(not some for effect, some in by_effect.items() if effect is not Effect.NOTHING)
    return Verdict(text, is_good, _commands(serious, store, is_writable))


def looked_at(logs: Sequence[Snapshot], is_tiered: bool = False) -> str:
    """What a check has looked at, in words.

    Args:
        logs: the logs of one store: one, or of a tiered store that of each queue.
        is_tiered: whether the store is a tiered one, which has nothing else that is checked.
    """
    known = [queue_facts(log) for log in logs]
    facts = [facts.only([kind != "lmq" for kind in facts.kinds]) for facts in known]
    messages = sum(int(each.counts.sum()) for each in facts)
    parts = [
        f"{size_text(sum(log.log.size for log in logs))} of log in "
        + counted(sum(len(log.log.extents) for log in logs), "segment"),
        f"{counted(messages, 'message')} in {counted(sum(map(len, facts)), 'queue')}",
    ]
    if is_tiered:
        return ", ".join(parts)
    index = sum(len(index_paths(log.layout.index, log.files)) for log in logs)
    return ", ".join([*parts, counted(index, "index file"), "config and consumers' offsets"])


def amount(rows: Iterable[Row]) -> str:
    """How much some findings of one problem are about: "3 messages", "188 bytes in 2 places", "2 findings"."""
    some = list(rows)
    noun = PROBLEMS[some[0]["problem"]].counts
    if not noun:
        return counted(len(some), "finding")
    counts = [row["count"] for row in some if row["count"] is not None]
    if not counts:
        return counted(len(some), "place")  # how much is unknown
    count = sum(counts)
    number = f"{count:,} {noun if count != 1 else noun.removesuffix('s')}"
    return number if len(some) == 1 else f"{number} in {len(some):,} places"


_CLAUSES = {
    Effect.DELETES: "{} damaged or missing ({}), and a broker that recovers deletes everything after them",
    Effect.LOSES: "messages are lost ({})",
    Effect.HIDES: "consumers do not get messages that the log has ({})",
    Effect.FORGETS: "topics or groups are not as they were ({})",
    Effect.UNFINDS: "look-ups by key miss messages ({})",
}


def _sentence(by_effect: Mapping[Effect, list[Row]], is_tiered: bool) -> str:
    clauses = [_clause(effect, by_effect[effect]) for effect in _CLAUSES if by_effect[effect]]
    if is_tiered:
        start, rest = "The tiered store can be read", " and has every message"
    elif some := by_effect[Effect.STOPS]:
        start, rest = f"Most brokers will not start on this store ({_amounts(some)})", ""
    elif some := by_effect[Effect.DOUBTS]:
        start, rest = f"A broker will start without some of its configuration, or not at all ({_amounts(some)})", ""
    else:
        start, rest = "A broker will start on this store", " and serve every message"
    if by_effect[Effect.DELETES] or by_effect[Effect.LOSES] or by_effect[Effect.HIDES]:
        rest = ""
    but = ", and " if by_effect[Effect.STOPS] or by_effect[Effect.DOUBTS] else ", but "
    less = by_effect[Effect.NOTHING]
    return (
        f"{start}{rest}{but if clauses else ''}{'; '.join(clauses)}{'; also mend ' + _amounts(less) if less else ''}."
    )


def _clause(effect: Effect, rows: list[Row]) -> str:
    if effect is not Effect.DELETES:
        return _CLAUSES[effect].format(_amounts(rows))
    lost = [row for row in rows if row["problem"] == "lostMessages"]
    damages = [row for row in rows if row["problem"] != "lostMessages"]
    count = sum(row["count"] for row in lost)
    is_least = any(UNKNOWN in str(row["found"]) for row in damages)
    who = f"{'at least ' if is_least else ''}{counted(count, 'message')} {'is' if count == 1 else 'are'}"
    return _CLAUSES[effect].format(who if count else "messages are", _amounts(damages))


def _amounts(rows: list[Row]) -> str:
    by_problem: dict[str, list[Row]] = {}
    for row in rows:
        by_problem.setdefault(row["problem"], []).append(row)
    return ", ".join(f"{problem}: {amount(some)}" for problem, some in by_problem.items())


def _commands(serious: list[Row], store: str, is_writable: bool) -> list[str]:
    fixes: dict[Fix, list[Row]] = {fix: [] for fix in Fix}
    for row in serious:
        fixes[PROBLEMS[row["problem"]].fix].append(row)
    if not any(some for fix, some in fixes.items() if fix is not Fix.NONE):
        return []
    path = shlex.quote(store)
    lines = []
    damaged = [*fixes[Fix.RESTORE], *(row for row in fixes[Fix.SALVAGE] if PROBLEMS[row["problem"]].area == "log")]
    if files := _files(damaged):
        more = f" and {len(files) - _AT_ONCE:,} more" if len(files) > _AT_ONCE else ""
        named = " ".join(files[:_AT_ONCE])
        lines.append(f"# if a replica or a backup has them, restore and check again: {named}{more}")
    if any(row["problem"] == "queueAheadOfLog" for row in serious):
        lines.append("# if a replica or a backup has the log's end, restore its last segments and check again")
    if fixes[Fix.SALVAGE]:
        salvaged = shlex.quote(_beside(store, "-salvaged"))
        lines.append(f"rmqstore salvage {path} {salvaged}")
        lines += [f"rmqstore rebuild {salvaged} --config"] if fixes[Fix.CONFIG] else []
    elif "://" in store:
        lines.append(f"rmqstore copy {path} {shlex.quote(_beside(store, '-copy'))}  # then check and mend the copy")
    else:
        lines += _in_place(fixes, store, is_writable)
    if fixes[Fix.ADMIN]:
        problems = ", ".join(dict.fromkeys(row["problem"] for row in fixes[Fix.ADMIN]))
        lines.append(f"# once the broker runs, with mqadmin as advised above: {problems}")
    return lines


def _in_place(fixes: Mapping[Fix, list[Row]], store: str, is_writable: bool) -> list[str]:
    lines = []
    path, aside = shlex.quote(store), shlex.quote(_beside(store, "-aside"))
    for fix, command in _FOR_FILES.items():
        files = _files(fixes[fix])
        some = [" ".join(files[at : at + _AT_ONCE]) for at in range(0, len(files), _AT_ONCE)]
        lines += [command.format(store=path, aside=aside, files=each) for each in some]
    for fix, command in _FOR_EACH.items():
        lines += [command.format(file=file) for file in _files(fixes[fix])]
    commands = {Fix.CONFIG: f"rmqstore rebuild {path} --config", Fix.REBUILD: f"rmqstore rebuild {path}"}
    rebuilds = [command for fix, command in commands.items() if fixes[fix]]
    if rebuilds and not is_writable:
        make = "salvage" if fixes[Fix.CONFIG] else "copy"  # a copy takes no broken file
        copy = shlex.quote(_beside(store, "-copy"))
        rebuilds = [f"rmqstore {make} {path} {copy}  # this kind of store is not written to: make an ordinary one"]
    lines += rebuilds
    return lines


def _files(rows: list[Row]) -> list[str]:
    """The files of some findings, quoted for a shell."""
    return [shlex.quote(file) for file in dict.fromkeys(row["file"] for row in rows if row["file"])]


def _beside(store: str, ending: str) -> str:
    """A new path beside a store; in the working directory for one that is remote."""
    plain = store.rstrip("/")
    return (os.path.basename(plain) if "://" in plain else plain) + ending
