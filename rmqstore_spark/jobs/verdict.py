"""What the findings of a check come to: one sentence, and the commands that mend the store."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmqstore_spark.amounts import size_text
from rmqstore_spark.errors import counted
from rmqstore_spark.jobs.findings import Findings, OfProblem
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import index_paths
from rmqstore_spark.tables.check.problems import Effect, Fix
from rmqstore_spark.tables.queues import queue_facts

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


def verdict(
    found: Findings, store: str, part: str | None = None, is_writable: bool = True, commitlog: str | None = None
) -> Verdict:
    """The verdict on a store.

    Args:
        found: the findings of the table `check`.
        store: the store's path or URL.
        part: what the store is (Snapshot.what), where it is not all that a broker has and so none starts on it.
        is_writable: whether its queues and index can be made anew in their place (kinds.is_writable).
        commitlog: option storePathCommitLog, where it was given. Such a store is not written to.
    """
    is_writable = is_writable and commitlog is None
    by_effect: dict[Effect, list[OfProblem]] = {effect: [] for effect in Effect}
    for each in found.serious:
        by_effect[each.problem.effect].append(each)
    text = _sentence(by_effect, part)
    if found.named("longTopic") is not None:
        text = text.replace("A broker will", "A broker of 5.1.0 or later will")
    if lacks_topics := found.named("noTopicConfig") is not None:
        text += " There is no config/topics.json: it serves a topic only once that is created anew."
    if found.unseen:
        places = ", ".join(dict.fromkeys(str(row["file"]) for row in found.unseen))
        known = (
            f"Of what was checked: {text[0].lower()}{text[1:]}"
            if found.serious
            else "Nothing is wrong in what was checked."
        )
        text = f"Cannot tell: {places} was not looked at. {known}"
    is_good = not found.unseen and all(not some for effect, some in by_effect.items() if effect is not Effect.NOTHING)
    commands = _commands(found, store, is_writable, _option(commitlog))
    if lacks_topics and is_writable and "://" not in store and not any(" salvage " in line for line in commands):
        commands.append(f"rmqstore rebuild {shlex.quote(store)} --config")
    return Verdict(text, is_good, commands)


def looked_at(logs: Sequence[Snapshot]) -> str:
    """What a check has looked at, in words.

    Args:
        logs: the logs of one store: one, or of a tiered store that of each queue.
    """
    known = [queue_facts(log) for log in logs]
    facts = [facts.without_light() for facts in known]
    messages = sum(int(each.counts.sum()) for each in facts)
    parts = [
        f"{size_text(sum(log.log.size for log in logs))} of log in "
        + counted(sum(len(log.log.extents) for log in logs), "segment"),
        f"{counted(messages, 'message')} in {counted(sum(map(len, facts)), 'queue')}",
    ]
    if not logs[0].is_whole:  # nothing else is checked
        return ", ".join(parts)
    index = sum(len(index_paths(log.layout.index, log.files)) for log in logs)
    return ", ".join([*parts, counted(index, "index file"), "config and consumers' offsets"])


_CLAUSES = {
    Effect.DELETES: "{} damaged or missing ({}), and a broker that recovers deletes everything after them",
    Effect.LOSES: "messages are lost ({})",
    Effect.HIDES: "consumers do not get messages that the log has ({})",
    Effect.FORGETS: "topics or groups are not as they were ({})",
    Effect.UNFINDS: "look-ups by key miss messages ({})",
}


def _sentence(by_effect: Mapping[Effect, list[OfProblem]], part: str | None) -> str:
    clauses = [_clause(effect, by_effect[effect]) for effect in _CLAUSES if by_effect[effect]]
    if part is not None:
        start, rest = f"The {part.removeprefix('a ')} can be read", " and has every message"
    elif by_effect[Effect.STOPS]:
        some = by_effect[Effect.STOPS] + by_effect[Effect.DOUBTS]
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


def _clause(effect: Effect, found: list[OfProblem]) -> str:
    if effect is not Effect.DELETES:
        return _CLAUSES[effect].format(_amounts(found))
    damages = [each for each in found if each.name != "lostMessages"]
    count = sum(each.total for each in found if each.name == "lostMessages")
    is_least = any(each.has_unknown for each in damages)
    who = f"{'at least ' if is_least else ''}{counted(count, 'message')} {'is' if count == 1 else 'are'}"
    return _CLAUSES[effect].format(who if count else "messages are", _amounts(damages))


def _amounts(found: list[OfProblem]) -> str:
    return ", ".join(f"{each.name}: {each.amount}" for each in found)


def _option(commitlog: str | None) -> str:
    """What a command needs after its paths, to find the log."""
    return "" if commitlog is None else f" --storePathCommitLog {shlex.quote(commitlog)}"


def _commands(found: Findings, store: str, is_writable: bool, option: str) -> list[str]:
    fixes: dict[Fix, list[OfProblem]] = {fix: [] for fix in Fix}
    for each in found.serious:
        fixes[each.problem.fix].append(each)
    if not any(some for fix, some in fixes.items() if fix is not Fix.NONE):
        return []
    path = shlex.quote(store)
    lines = []
    damaged = [*fixes[Fix.RESTORE], *(each for each in fixes[Fix.SALVAGE] if each.problem.area == "log")]
    if files := _files(damaged):
        more = f" and {len(files) - _AT_ONCE:,} more" if len(files) > _AT_ONCE else ""
        named = " ".join(files[:_AT_ONCE])
        lines.append(f"# if a replica or a backup has them, restore and check again: {named}{more}")
    if any(each.name == "queueAheadOfLog" for each in found.serious):
        lines.append("# if a replica or a backup has the log's end, restore its last segments and check again")
    if fixes[Fix.SALVAGE]:
        salvaged = shlex.quote(_beside(store, "-salvaged"))
        lines.append(f"rmqstore salvage {path} {salvaged}{option}")
        lines += [f"rmqstore rebuild {salvaged} --config"] if fixes[Fix.CONFIG] else []
    elif "://" in store:
        copy = shlex.quote(_beside(store, "-copy"))
        lines.append(f"rmqstore copy {path} {copy}{option}  # then check and mend the copy")
    else:
        lines += _in_place(fixes, store, is_writable, option)
    if fixes[Fix.ADMIN]:
        problems = ", ".join(each.name for each in fixes[Fix.ADMIN])
        lines.append(f"# once the broker runs, with mqadmin as advised above: {problems}")
    return lines


def _in_place(fixes: Mapping[Fix, list[OfProblem]], store: str, is_writable: bool, option: str) -> list[str]:
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
        why = "this kind of store is not written to: make an ordinary one"
        rebuilds = [f"rmqstore {make} {path} {copy}{option}  # {why}"]
    lines += rebuilds
    return lines


def _files(found: Iterable[OfProblem]) -> list[str]:
    """The files of some findings, quoted for a shell."""
    return [shlex.quote(file) for file in dict.fromkeys(file for each in found for file in each.files)]


def _beside(store: str, ending: str) -> str:
    """A new path beside a store; in the working directory for one that is remote."""
    plain = store.rstrip("/")
    return (os.path.basename(plain) if "://" in plain else plain) + ending
