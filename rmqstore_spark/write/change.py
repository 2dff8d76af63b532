"""How a store is changed: all at once, or not at all, whenever the writer is killed.

Everything is made ready in `<store>/.rmqstore-spark/commit/new/`, a tree like the store's, and brought to disk; nobody
looks there. A broker ignores names in the store directory that it does not know. Then, step by step:

    1  `journal` says that it begins, and which directories are exchanged
    2  `checkpoint` is moved away, and `abort` is made: from this state a broker rebuilds ConsumeQueue and IndexFile
       from the whole commitlog; 5.5.0 only from its last ten files, unless commitLogRecoverMaxNum says otherwise
    3  config/topics.json knows the new topics
    4  new/commitlog and commitlog swap their names: one system call. Before it there is nothing of the new messages,
       after it all of them. (new/commitlog has hard links to the segments that stay as they are, and a copy of the one
       that goes on: nothing is written into a file that a reader or a broker knows.)
       Or a few messages are written behind the end of the log, and then count with one small write (stretch.py).
    5  new ConsumeQueue and index files are renamed into the store; for a few messages, the last index file is changed
       where it is (patch.py). Readers do without them, a broker makes them anew
    6  `abort` is removed, the new `checkpoint` comes into the store, and the rest is thrown away

A rebuild exchanges consumequeue in step 4, and then index, if it makes one; it has no step 5.

4 is the commit point. Of a writer that was killed before it, the next one undoes 3 and 2; of one that was killed after
it, it does 5 and 6. Both can be killed and done again. A broker that was started in between has recovered the store by
itself, and it has made a `checkpoint`: there never is one between 2 and 6. What it found then is whole, and so all that
is ours is only thrown away.

Which store times are in it (store/written.py) comes into the workshop before 1: no message is there that is not known.
Who wrote it (transactions.py) is a file in `new`, too. Right after the commit point it comes into the workshop, by the
writer itself or by the next one, whatever a broker has done in between: what is written is never forgotten.

A checkpoint is away as long as an `abort` of ours is there, never the other way: one that stands beside a checkpoint is
a broker's.

A journal may be a trap (journal.py). So because of one nothing moves but the directories above, `checkpoint`, `abort`
and config/topics.json. The commitlog is exchanged only by the writer that made it, never because a journal says so. One
that does not fit is set aside.
"""

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.store.files import ReadFile
from rmqstore_spark.store.indexfile import FILE_NAME
from rmqstore_spark.store.layout import queue_id_of, start_in
from rmqstore_spark.store.written import record_path
from rmqstore_spark.write import patch
from rmqstore_spark.write.calls import RaceError
from rmqstore_spark.write.disk import PROBE, Tree
from rmqstore_spark.write.journal import APPENDED, PUT, STRETCHED, Journal, NewerError, UnfitError, read, write
from rmqstore_spark.write.replacement import sweep_beside
from rmqstore_spark.write.staging import is_left
from rmqstore_spark.write.stretch import Laying, Stretch
from rmqstore_spark.write.workshop import ASIDE, GONE, PART, STAGING, transactions_path, workshop

log = logging.getLogger(__name__)

_ABORT = b"rmqstore-spark"
_ABANDONED_SECONDS = 7 * 24 * 3600


class _File(NamedTuple):
    """A file that a change replaces: where the store has it, where the old one is kept, where the new one is made."""

    here: str
    old: str
    new: str


class _Step(NamedTuple):
    """A step before the commit point, and how it is undone. Both can be killed anywhere, and done again."""

    do: Callable[[Journal], None]
    undo: Callable[[Journal], None]


class _Move(NamedTuple):
    """What happens to one name in the store when files are put.

    Attributes:
        target: the name.
        source: what is renamed to it. None: a file is deleted; a directory stays, and what moves into it comes next.
        is_directory: whether it is one; else it is a file.
    """

    target: str
    source: str | None
    is_directory: bool


class Change:
    """A change to a store that is being made ready. The store's lock is held from begin() to its end.

    Attributes:
        new: where the store's new files are made, in a tree like the store's.
        is_published: whether all of the change counts, and nothing of it can be undone any more.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.root = tree.path
        self.is_published = False
        self._is_synced = False  # and is on disk
        self._workshop = workshop(self.root)
        self._home = os.path.join(self._workshop, "commit")
        self.new = os.path.join(self._home, "new")
        self._old = os.path.join(self._home, "old")
        self._path = os.path.join(self._home, "journal")
        self._checkpoint = self._file("checkpoint")
        self._topics = self._file("config", "topics.json")
        self._transactions = transactions_path(self.root)
        self._new_transactions = transactions_path(self.new)
        self._times = record_path(self.root)
        self._new_times = record_path(self.new)
        self._config = self._in_root("config")
        self._units: memoryview | None = None
        self._abort = self._in_root("abort")

    def _in_root(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def _in_new(self, *names: str) -> str:
        return os.path.join(self.new, *names)

    def _file(self, *names: str) -> _File:
        return _File(self._in_root(*names), os.path.join(self._old, names[-1]), self._in_new(*names))

    def _has(self, path: str) -> bool:
        return self._tree.find(path) is not None

    def _put(self, source: str, target: str) -> None:
        """Rename a file, if it is there."""
        if self._has(source):
            self._tree.rename(source, target)
            self._tree.sync_directory(os.path.dirname(target))

    # ---- from beginning to end

    def begin(self) -> None:
        """Finish or undo what a killed writer left, and make the directories for a new change."""
        self.recover()
        self._tree.make_private(self._home)
        for made in (self.new, self._old):
            self._tree.make_private(made)
        self._tree.stand_for(self.new, self.root)

    def publish(self, exchanged: tuple[str, ...]) -> None:
        """Bring what is in `new` into the store.

        Args:
            exchanged: APPENDED, REBUILT or REBUILT_WITHOUT_INDEX.

        Raises:
            RmqStoreError: nothing was changed, but for what give_up() undoes; or, where the text says so, all is
                written, but the disk does not say that it has it. What else fails after that is only told in the log.
        """
        made = {name: self._tree.status(self._in_new(name)).st_ino for name in exchanged}
        self._publish(Journal(made, self._has(self._topics.here), self._has(self._topics.new)))

    def publish_stretch(self, stretch: Stretch, units: memoryview) -> None:
        """Write units behind the end of the log, and bring what is in `new` into the store; errors as of publish()."""
        self._units = units
        self._publish(Journal({}, self._has(self._topics.here), self._has(self._topics.new), stretch))

    def _publish(self, journal: Journal) -> None:
        self._refuse_obstacles(journal)
        self._tree.sync_directories(self.new)
        with self._tree.kept_free(sum(1 for _ in self._moves(journal))) as give_free:
            self._put_times()
            self._write(journal)
            for step in self._steps_before:
                step.do(journal)
            self._refuse_started_broker()
            give_free()  # so that no descriptor is missing after the commit point

        self._commit(journal)  # the commit point: before it nothing counts, after it all
        self.is_published = True

        try:
            self._finish(journal)
        except Exception as why:
            log.warning("%s; trying once more", one_line(why))
            self._finish_again(why)

    @property
    def _steps_before(self) -> tuple[_Step, ...]:
        """What is done before the commit point, in this order."""
        return (
            _Step(do=self._move_checkpoint_away, undo=self._bring_checkpoint_back),
            _Step(do=self._make_abort, undo=self._remove_our_abort),
            _Step(do=self._add_topics, undo=self._bring_topics_back),
            _Step(do=self._lay_stretch, undo=self._take_stretch_back),
        )

    @property
    def _steps_after(self) -> tuple[Callable[[Journal], None], ...]:
        """What is done after it, in this order. Nothing of it is ever undone."""
        return (
            self._sync_commit,
            self._put_transactions,
            self._exchange_the_others,
            self._patch_index,
            self._put_files,
            self._remove_abort,
            self._put_checkpoint,
            self._clear,
        )

    def _undo(self, journal: Journal) -> None:
        """Bring the store back to what it was, however many of the steps before the commit point were done."""
        for step in reversed(self._steps_before):
            step.undo(journal)

    def _finish(self, journal: Journal) -> None:
        """Do the steps after the commit point, however many of them were done."""
        for step in self._steps_after:
            step(journal)

    def _finish_again(self, why: Exception) -> None:
        try:
            self.recover()
        except Exception:
            if not self._is_synced:
                raise RmqStoreError(
                    f"{why}: the messages are all written, do not write them again; but a power cut may still take "
                    "them: see what is wrong with the disk, and call rmqstore_spark.rebuild(store)"
                ) from None
            log.warning(
                "%s: the messages are all written, but the store is not tidy: the next write, "
                "rmqstore_spark.rebuild(store) or a broker does the rest: %s",
                *map(one_line, (self.root, why)),
            )

    # ---- what was left half done

    @property
    def is_pending(self) -> bool:
        """Has a killed writer left something to finish or to undo?"""
        return self._has(self._path)

    def recover(self) -> None:
        """Finish what a killed or failed writer left, if it had passed the commit point; else undo it.

        Raises:
            RmqStoreError: it cannot be done; or a newer version than this one has left it.
        """
        if not self._has(self._home):
            return
        try:
            journal = self._left()
        except NewerError:
            raise
        except (UnfitError, OSError, RmqStoreError) as why:
            self._set_aside(why)
            return
        if journal is not None and self._counts(journal):
            log.warning("%s: finishing a write that was killed", one_line(self.root))
            self._finish(journal)
            return
        if journal is not None:
            log.warning("%s: undoing a write that was killed", one_line(self.root))
            self._undo(journal)
        self._tree.remove(self._path)
        self._tree.remove_tree(self._home)

    def give_up(self) -> None:
        """Undo what was done so far, if it does not count yet. Where that fails it is left to the next write."""
        if not self.is_published:
            try:
                self.recover()
            except Exception as why:
                log.warning("%s: not tidied up, the next write will try again: %s", self.root, one_line(why))

    def sweep(self) -> None:
        """Throw away what a killed write has left: beside the store, and in the workshop. Of a job of Spark's nobody
        knows whether it was killed; it is thrown away when it is old."""
        sweep_beside(self._tree)
        for name in self._tree.names(self._workshop) if self._has(self._workshop) else []:
            if self._is_left(name):
                with contextlib.suppress(RaceError):  # who has ended that job may be at it, too
                    self._tree.remove_tree(os.path.join(self._workshop, name))

    def _is_left(self, name: str) -> bool:
        """Does nobody need it any more, in the workshop?"""
        if name.startswith(PROBE) or name.endswith(PART):
            return True
        if not name.startswith((STAGING, ASIDE)):
            return False
        path = os.path.join(self._workshop, name)
        if name.startswith(STAGING) and (name.endswith(GONE) or is_left(self._tree, path)):
            return True
        found = self._tree.find(path)
        return found is not None and time.time() - found.st_mtime > _ABANDONED_SECONDS

    def _left(self) -> Journal | None:
        """What a killed writer was doing; None where there is nothing to finish or to undo.

        Raises:
            NewerError, UnfitError: the journal is none of ours.
            OSError, RmqStoreError: it cannot be read, or something stands in the way of what it says.
        """
        if not self.is_pending:
            return None
        journal = read(self._tree, self._path)
        counts = self._counts(journal)
        if counts:
            self._put_transactions(journal)
        if self._has(self._checkpoint.here):  # a broker's, which has recovered the store
            if journal.stretch is not None and not counts:
                self._laying(journal.stretch).take_back()
            return None
        self._refuse_obstacles(journal)
        return journal

    def _set_aside(self, why: Exception) -> None:
        aside = os.path.join(self._workshop, f"{ASIDE}{time.time_ns():x}")
        log.warning("%s: not followed, and moved to %s: %s", one_line(self._path), one_line(aside), one_line(why))
        self._tree.rename(self._home, aside)

    # ---- 1: the journal

    def _put_times(self) -> None:
        """Note down store times before the messages count. It is not undone: what is said of messages that never came,
        or are others, is not believed (store/log_times.py)."""
        if self._has(self._new_times):
            self._tree.rename(self._new_times, self._times)  # on disk with the journal

    def _write(self, journal: Journal) -> None:
        write(self._tree, self._path, journal)
        self._tree.sync_directory(self._workshop)

    def _refuse_obstacles(self, journal: Journal) -> None:
        """See that nothing stands in the way of what is to be done: what fails then is the disk.

        Raises:
            RmqStoreError: naming it.
        """
        directories = [self.new, self._old, self._config]
        for name in (*journal.exchanged, *PUT[journal.exchanged]):
            directories += [self._in_root(name), self._in_new(name)]
        for path in directories:
            self._refuse_unless(path, is_directory=True)
        if journal.stretch is not None:
            self._refuse_unless(self._in_root("commitlog"), is_directory=True)
            self._refuse_unless(self._laying(journal.stretch).path, is_directory=False)
        for changes, path in self._patches(journal):
            self._refuse_unless(path, is_directory=False)
            patch.parts(self._tree, changes, path)
        own = (self._transactions, self._new_transactions, self._times, self._new_times)
        for path in (self._abort, *self._checkpoint, *self._topics, *own):
            self._refuse_unless(path, is_directory=False)
        for name in journal.exchanged:
            if not self._is_exchanged(name, journal) and not self._has(self._in_new(name)):
                raise RmqStoreError(f"{self._in_new(name)}: expected the new directory, found none")
        for move in self._moves(journal):
            self._refuse_unless(move.target, move.is_directory)

    def _refuse_unless(self, path: str, is_directory: bool) -> None:
        """Whatever is not a file, or not a directory that names can be changed in. That nothing is there is fine."""
        if not is_directory:
            self._tree.refuse_other_than(path, stat.S_ISREG, "a file")
            return
        self._tree.refuse_other_than(path, stat.S_ISDIR, "a directory")
        if self._tree.is_directory(path):
            self._tree.refuse_unwritable(path)

    # ---- 2: the checkpoint goes, an abort comes

    def _move_checkpoint_away(self, _: Journal) -> None:
        if self._has(self._checkpoint.here):
            self._tree.rename(self._checkpoint.here, self._checkpoint.old)
            self._tree.sync_directory(self._old)
            self._tree.sync_directory(self.root)

    def _bring_checkpoint_back(self, _: Journal) -> None:
        self._put(self._checkpoint.old, self._checkpoint.here)

    def _make_abort(self, _: Journal) -> None:
        if not self._has(self._abort):
            new = os.path.join(self._home, "abort")
            self._tree.write_file(new, _ABORT, self._abort)  # with one without content nobody would know whose it is
            self._tree.rename(new, self._abort)
            self._tree.sync_directory(self.root)

    def _remove_our_abort(self, _: Journal) -> None:
        if self._abort_is_ours():
            self._tree.remove(self._abort)
            self._tree.sync_directory(self.root)

    def _abort_is_ours(self) -> bool:
        if not self._has(self._abort):
            return False
        with ReadFile(self._abort, self._tree) as file:
            return file.read(0, len(_ABORT) + 1) == _ABORT

    # ---- 3: the new topics

    def _add_topics(self, journal: Journal) -> None:
        if not journal.has_topics:
            return
        self._tree.make_directory(self._config)
        if journal.had_topics:  # a copy: a file that root has edited, its owner must not link
            with ReadFile(self._topics.here, self._tree) as file:
                self._tree.write_file(self._topics.old + ".part", file.read(0, file.size), self._topics.here)
            self._tree.rename(self._topics.old + ".part", self._topics.old)
            self._tree.sync_directory(self._old)
        self._tree.rename(self._topics.new, self._topics.here)
        self._tree.sync_directory(self._config)

    def _bring_topics_back(self, journal: Journal) -> None:
        if self._has(self._topics.old):
            self._tree.rename(self._topics.old, self._topics.here)
        elif journal.has_topics and not journal.had_topics and not self._has(self._topics.new):
            self._tree.remove(self._topics.here)

    # ---- 4: the exchange, or the stretch

    def _commit(self, journal: Journal) -> None:
        if journal.stretch is not None:
            self._laying(journal.stretch).publish()
        elif journal.first is not None:
            self._exchange(journal.first)

    def _counts(self, journal: Journal) -> bool:
        """Has a change passed its commit point?"""
        if journal.stretch is not None:
            return self._laying(journal.stretch).is_published
        return journal.first is not None and self._is_exchanged(journal.first, journal)

    def _sync_commit(self, journal: Journal) -> None:
        if journal.stretch is not None:
            self._laying(journal.stretch).sync()
        self._tree.sync_directory(self.root)
        self._is_synced = True

    def _laying(self, stretch: Stretch) -> Laying:
        return Laying(self._tree, self._in_root("commitlog"), self._home, stretch)

    def _lay_stretch(self, journal: Journal) -> None:
        if journal.stretch is not None and self._units is not None:
            self._laying(journal.stretch).lay(self._units)

    def _take_stretch_back(self, journal: Journal) -> None:
        if journal.stretch is not None:
            self._laying(journal.stretch).take_back()

    def _refuse_started_broker(self) -> None:
        if self._has(self._checkpoint.here):
            raise RmqStoreError(
                f"{self.root}: a broker was started on the store while it was written to: nothing was written; "
                "stop the broker and write again"
            )

    def _exchange(self, name: str) -> None:
        if self._has(self._in_root(name)):
            self._tree.exchange(self._in_new(name), self._in_root(name))
        else:
            self._tree.rename(self._in_new(name), self._in_root(name))

    def _is_exchanged(self, name: str, journal: Journal) -> bool:
        """Is the store's directory the one that was made for this change?"""
        found = self._tree.find(self._in_root(name))
        return found is not None and found.st_ino == journal.made[name]

    def _exchange_the_others(self, journal: Journal) -> None:
        """After the first one: those that a rebuild has beside it."""
        for name in journal.exchanged:
            if not self._is_exchanged(name, journal):
                self._exchange(name)

    # ---- who wrote it

    def _put_transactions(self, _: Journal) -> None:
        self._put(self._new_transactions, self._transactions)

    # ---- 5: ConsumeQueue and index files

    def _put_files(self, journal: Journal) -> None:
        changed: set[str] = set()
        for move in list(self._moves(journal)):
            if move.source is not None:
                self._tree.rename(move.source, move.target)
                changed.add(os.path.dirname(move.target))
            elif not move.is_directory:
                self._tree.remove(move.target)
        if not self._tree.sync_all(len(changed)):
            self._tree.for_each(sorted(changed), self._tree.sync_directory)
        self._tree.sync_directory(self.root)

    def _patch_index(self, journal: Journal) -> None:
        for changes, path in self._patches(journal):
            patch.apply(self._tree, changes, path, os.path.join(self._home, "index"))

    def _patches(self, journal: Journal) -> Iterator[tuple[str, str]]:
        """What changes in index files that are there, and the files."""
        patches = self._in_new(patch.PATCHES)
        if journal.stretch is not None and self._tree.is_directory(patches):
            for name in self._tree.names(patches):
                path = self._in_root("index", name)
                if FILE_NAME.fullmatch(name) and self._has(path):
                    yield os.path.join(patches, name), path

    def _moves(self, journal: Journal) -> Iterator[_Move]:
        """What goes where, in the order to do it in. What has been done already is not among it."""
        for top in PUT[journal.exchanged]:
            if self._tree.is_directory(self._in_new(top)):
                yield from self._moves_of(top)

    def _moves_of(self, *names: str) -> Iterator[_Move]:
        """A new directory goes as a whole; where the store has one, file by file, in the order of their names."""
        source, target = self._in_new(*names), self._in_root(*names)
        if not self._has(target):
            yield _Move(target, source, is_directory=True)
            return
        yield _Move(target, None, is_directory=True)
        for stale in self._stale(names):
            yield _Move(stale, None, is_directory=False)
        for name in sorted(self._tree.names(source)):
            inner = (*names, name)
            is_directory = self._tree.is_directory(self._in_new(*inner))
            if _belongs(inner, is_directory):
                if is_directory:
                    yield from self._moves_of(*inner)
                else:
                    yield _Move(self._in_root(*inner), self._in_new(*inner), is_directory=False)

    def _stale(self, names: tuple[str, ...]) -> list[str]:
        """Files of a queue after the last new one, which are the remains of a log that was cut; the last one first."""
        if len(names) != len(("consumequeue", "topic", "queueId")):
            return []
        new = [name for name in self._tree.names(self._in_new(*names)) if start_in(name) is not None]
        if not new:
            return []
        found = [name for name in self._tree.names(self._in_root(*names)) if start_in(name) is not None]
        return [self._in_root(*names, name) for name in sorted(found, reverse=True) if name > max(new)]

    # ---- 6: the abort goes, the new checkpoint comes

    def _remove_abort(self, journal: Journal) -> None:
        # A broker's is for rebuild() to settle.
        if journal.exchanged not in (APPENDED, STRETCHED) or self._abort_is_ours():
            self._tree.remove(self._abort)
        self._tree.sync_directory(self.root)

    def _put_checkpoint(self, _: Journal) -> None:
        self._put(self._checkpoint.new, self._checkpoint.here)

    def _clear(self, _: Journal) -> None:
        self._tree.remove(self._path)
        self._tree.sync_directory(self._home)
        self._tree.remove_tree(self._home)


def _belongs(names: tuple[str, ...], is_directory: bool) -> bool:
    """May a change have made this, in one of the directories into which it puts files?"""
    match names:
        case ("consumequeue", _):
            return is_directory
        case ("consumequeue", _, queue_id):
            return is_directory and queue_id_of(queue_id) is not None
        case ("consumequeue", _, _, name):
            return not is_directory and start_in(name) is not None
        case ("index", name):
            return not is_directory and FILE_NAME.fullmatch(name) is not None
    return False
