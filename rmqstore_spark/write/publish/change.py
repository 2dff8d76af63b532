"""How a store is changed: all at once, or not at all, whenever the writer is killed.

Everything is made ready in `<store>/.rmqstore-spark/commit/new/`, a tree like the store's, and brought to disk. No
reader or broker looks there: a broker ignores names in the store directory that it does not know. Then, step by step:

    1  `journal` records that the change begins, and which directories are exchanged
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

Files of config/ alone need none of these steps and no journal: each is renamed over the old one, which is its commit
point. A broken one gets a second name before. What is left of a writer that was killed before is thrown away by the
next one.

Step 4 is the commit point. If a writer was killed before it, the next writer undoes steps 3 and 2; if a writer was
killed after it, the next writer does steps 5 and 6. Undoing and finishing can both be killed and done again. A broker
started in between has recovered the store by itself and has made a `checkpoint`; otherwise there is never a checkpoint
between steps 2 and 6. The files that such a broker found are whole, so everything of ours is only thrown away.

The range of store times (written.py) comes into the workshop before step 1, so no message is ever in the log without
it. The application that wrote (write_ids.py) is a file in `new`, too. The file comes into the workshop right after
the commit point, by the writer itself or by the next one, whatever a broker has done in between: a write that counts is
never forgotten.

The checkpoint is away as long as an `abort` of ours is there, never the other way round: an `abort` that stands beside
a checkpoint is a broker's.

A journal may be a trap (journal.py). So a journal makes nothing move but the directories above, `checkpoint`, `abort`
and config/topics.json. The commitlog is exchanged only by the writer that made it, never because a journal says so. A
journal that does not fit is set aside.
"""

import itertools
import logging
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator

from rmqstore_spark.errors import RmqStoreError, counted, one_line
from rmqstore_spark.store.structures.written import record_path
from rmqstore_spark.write.build.stretch import InPlaceAppend
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import ASIDE, workshop, write_ids_path
from rmqstore_spark.write.publish.journal import Journal, NewerError, UnfitError, read, write
from rmqstore_spark.write.publish.moves import Below, Move, moves
from rmqstore_spark.write.publish.publication import Publication, publication_of
from rmqstore_spark.write.publish.site import Site
from rmqstore_spark.write.publish.steps import Abort, Checkpoint, Step, Topics

logger = logging.getLogger(__name__)


class Change:
    """A change to a store that is being made ready. The store's lock is held from begin() to its end.

    Attributes:
        new: where the store's new files are made, in a tree like the store's.
        is_published: whether the whole change counts, so that nothing of it can be undone any more.
    """

    def __init__(self, tree: Tree) -> None:
        self._site = Site(tree)
        self.new = self._site.new
        self.is_published = False

    def begin(self) -> None:
        """Finish or undo what a killed writer left, and make the directories for a new change."""
        self.recover()
        tree = self._site.tree
        for made in (self._site.home, self._site.new, self._site.old):
            tree.make_private(made)
        tree.stand_for(self._site.new, self._site.root)

    def publish(self, exchanged: tuple[str, ...]) -> None:
        """Bring the files in `new` into the store.

        Args:
            exchanged: APPENDED, or one that begins with REBUILT or BATCHES_REBUILT.

        Raises:
            RmqStoreError: nothing was changed, except what give_up() undoes; or, where the text says so, everything is
                written, but the disk has not confirmed it. Later failures are only reported in the log.
        """
        self._publish({name: self._site.tree.status(self._site.in_new(name)).st_ino for name in exchanged})

    def publish_stretch(self, stretch: InPlaceAppend, units: memoryview) -> None:
        """Write units behind the end of the log, and bring the files in `new` into the store; errors as of
        publish()."""
        self._publish({}, stretch, units)

    def publish_config(self, names: Iterable[str], broken: Collection[str] = ()) -> None:
        """Put files of config/ from `new` in the place of the store's, one after the other.

        Args:
            names: the files' names.
            broken: those in whose place something is that is kept, as NAME.broken.

        Raises:
            RmqStoreError: nothing was changed; or, where the text says so, some files are, each of them whole, or the
                disk has not confirmed it.
        """
        site, done = self._site, 0
        places = [(site.in_root("config", name), site.in_new("config", name), name in broken) for name in names]
        directory = site.in_root("config")
        site.refuse_other_than_directory(directory, site.in_new("config"))
        site.refuse_other_than_file(
            *(path for here, new, is_kept in places for path in (*([] if is_kept else [here]), new))
        )
        asides = [_aside(site, here) if is_kept else None for here, _, is_kept in places]
        site.tree.sync_directories(site.new)
        site.tree.make_directory(directory)
        try:
            for (here, new, _), aside in zip(places, asides, strict=True):
                if aside is not None:
                    self._keep(here, aside)
                site.tree.rename(new, here)  # the commit point of this file
                self.is_published = True
                done += 1
            site.tree.sync_directory(directory)
        except Exception as why:
            if not done:
                raise
            raise RmqStoreError(
                f"{why}: changed: {done} of {counted(len(places), 'file')} in {directory}, each of them whole, but a "
                "power failure may still take that back: find out what is wrong with the disk, and do it again"
            ) from None
        try:
            site.tree.remove_tree(site.home)
        except Exception as why:
            logger.warning("%s: not cleaned up; the next write does it: %s", *map(one_line, (site.home, why)))

    def _keep(self, here: str, aside: str) -> None:
        """Give what is in the place of a file another name; a file keeps its own as well, until it is replaced."""
        tree = self._site.tree
        if not stat.S_ISREG(tree.status(here).st_mode):
            tree.rename(here, aside)
        elif tree.find(aside) is None:  # else a kill came right after this
            tree.link(here, aside)

    def _publish(
        self, made: dict[str, int], stretch: InPlaceAppend | None = None, units: memoryview | None = None
    ) -> None:
        site = self._site
        had_topics, has_topics = (site.has(top("config", "topics.json")) for top in (site.in_root, site.in_new))
        journal = Journal(made, had_topics, has_topics, stretch)
        course = _Course(site, journal, publication_of(site, journal, units))
        course.refuse_obstacles()
        site.tree.sync_directories(site.new)
        with site.tree.kept_free(sum(1 for _ in course.moves())) as give_free:
            course.put_times()
            write(site.tree, site.journal, journal)
            site.tree.sync_directory(workshop(site.root))
            course.do()
            give_free()  # so that descriptors do not run out after the commit point

        course.publication.publish()  # the commit point: before it nothing counts, after it everything
        self.is_published = True

        try:
            course.finish()
        except Exception as why:
            logger.warning("%s; trying once more", one_line(why))
            self._finish_again(course, why)

    def _finish_again(self, course: "_Course", why: Exception) -> None:
        try:
            self.recover()
        except Exception:
            if not course.is_synced:
                raise RmqStoreError(
                    f"{why}: all messages are written, do not write them again; but a power failure may still lose "
                    "them: find out what is wrong with the disk, and call rmqstore_spark.rebuild(store)"
                ) from None
            logger.warning(
                "%s: all messages are written, but the cleanup is not complete: the next write, "
                "rmqstore_spark.rebuild(store) or a broker finishes it: %s",
                *map(one_line, (self._site.root, why)),
            )

    # ---- changes left half done

    @property
    def is_pending(self) -> bool:
        """Has a killed writer left something to finish or to undo?"""
        return self._site.has(self._site.journal)

    def recover(self) -> None:
        """Finish what a killed or failed writer left, if it had passed the commit point; else undo it.

        Raises:
            RmqStoreError: recovery failed, or the change was left by a newer version than this one.
        """
        site = self._site
        if not site.has(site.home):
            return
        try:
            course = self._left()
        except NewerError:
            raise
        except (UnfitError, OSError, RmqStoreError) as why:
            self._set_aside(why)
            return
        if course is not None and course.publication.is_published:
            logger.warning("%s: finishing a write that was killed", one_line(site.root))
            course.finish()
            return
        if course is not None:
            logger.warning("%s: undoing a write that was killed", one_line(site.root))
            course.undo()
        _clear(site)

    def give_up(self) -> None:
        """Undo the steps done so far, unless the change counts already. If undoing fails, the next write does it."""
        if not self.is_published:
            try:
                self.recover()
            except Exception as why:
                logger.warning("%s: not cleaned up; the next write will try again: %s", self._site.root, one_line(why))

    def _left(self) -> "_Course | None":
        """The course of a killed writer; None where there is nothing to finish or to undo.

        Raises:
            NewerError, UnfitError: the journal is not one that this version writes.
            OSError, RmqStoreError: the journal cannot be read, or something stands in the way of its steps.
        """
        if not self.is_pending:
            return None
        journal = read(self._site.tree, self._site.journal)
        course = _Course(self._site, journal, publication_of(self._site, journal))
        is_published = course.publication.is_published
        if is_published:
            course.put_write_ids()
        if course.checkpoint.is_there:  # made by a broker, which has recovered the store
            if not is_published:
                course.publication.undo()
            return None
        course.refuse_obstacles()
        return course

    def _set_aside(self, why: Exception) -> None:
        site = self._site
        aside = os.path.join(workshop(site.root), f"{ASIDE}{time.time_ns():x}")
        logger.warning("%s: not followed, and moved to %s: %s", one_line(site.journal), one_line(aside), one_line(why))
        site.tree.rename(site.home, aside)


def _aside(site: Site, here: str) -> str | None:
    """The path at which something is kept that is in the place of a file; None where nothing is there.

    Raises:
        RmqStoreError: a link is there.
    """
    found = site.tree.find(here)
    if found is None:
        return None
    site.tree.refuse_other_than(here, lambda mode: not stat.S_ISLNK(mode), "a file")
    for number in itertools.count(1):
        aside = f"{here}.broken" + f"-{number}" * (number > 1)
        there = site.tree.find(aside)
        if there is None or (there.st_ino, there.st_dev) == (found.st_ino, found.st_dev):
            return aside
    raise AssertionError


def _clear(site: Site) -> None:
    """Remove what is left of a change: the journal first, on disk, as it names the rest."""
    site.tree.remove(site.journal)
    site.tree.sync_directory(site.home)
    site.tree.remove_tree(site.home)


class _Course:
    """The steps of a change, in order.

    Large because the fields are each step, and the files that two of them move.

    Attributes:
        checkpoint: the step that moves the checkpoint away.
        publication: the last step before the commit point, and the commit point itself.
        is_synced: whether the published files are on disk.
    """

    def __init__(self, site: Site, journal: Journal, publication: Publication) -> None:
        self._site = site
        self.is_synced = False
        self.checkpoint = Checkpoint(site)
        self._abort = Abort(site)
        self._topics = Topics(site, journal.had_topics, journal.has_topics)
        self.publication = publication
        self._before: tuple[Step, ...] = (self.checkpoint, self._abort, self._topics, publication)
        self._write_ids = write_ids_path(site.root), write_ids_path(site.new)
        self._times = record_path(site.root), record_path(site.new)

    def refuse_obstacles(self) -> None:
        """See that nothing stands in the way of the steps, so that later failures are the disk's.

        Raises:
            RmqStoreError: naming the obstacle.
        """
        site = self._site
        site.refuse_other_than_directory(site.new, site.old, site.in_root("config"))
        for name in self.publication.puts:
            site.refuse_other_than_directory(site.in_root(name), site.in_new(name))
        self.publication.refuse_obstacles()
        site.refuse_other_than_file(self._abort.path, *self.checkpoint.paths, *self._topics.paths)
        site.refuse_other_than_file(*self._write_ids, *self._times)
        for move in self.moves():
            refuse = site.refuse_other_than_directory if move.is_directory else site.refuse_other_than_file
            refuse(site.in_root(*move.names))

    def put_times(self) -> None:
        """Note down store times before the messages count. This is not undone: store times of messages that never came,
        or that have become others, are not believed (store/log_times.py)."""
        here, new = self._times
        if self._site.has(new):
            self._site.tree.rename(new, here)  # on disk with the journal

    def do(self) -> None:
        """The steps before the commit point.

        Raises:
            RmqStoreError: a broker was started meanwhile.
        """
        for step in self._before:
            step.do()
        if self.checkpoint.is_there:
            raise RmqStoreError(
                f"{self._site.root}: a broker was started on the store while it was written to: nothing was written; "
                "stop the broker and write again"
            )

    def undo(self) -> None:
        """Bring the store back to its former state, however many of the steps before the commit point were done."""
        for step in reversed(self._before):
            step.undo()

    def finish(self) -> None:
        """Do the steps after the commit point, however many of them were done already. None of them is ever undone."""
        site = self._site
        self.publication.sync()
        site.tree.sync_directory(site.root)
        self.is_synced = True
        self.put_write_ids()
        self.publication.complete()
        self._put_files()
        self._abort.finish(with_a_brokers=self.publication.is_rebuild)  # else rebuild() settles a broker's abort
        self.checkpoint.finish()
        _clear(site)

    def put_write_ids(self) -> None:
        """Note down the application that wrote."""
        here, new = self._write_ids
        self._site.put(new, here)

    def moves(self) -> Iterator[Move]:
        """The moves into the store's directories that are still to be done."""
        tree = self._site.tree
        return moves(Below(tree, self._site.new), Below(tree, self._site.root), self.publication.puts)

    def _put_files(self) -> None:
        site, directories = self._site, list[str]()
        for move in list(self.moves()):
            target = site.in_root(*move.names)
            if move.comes:
                site.tree.rename(site.in_new(*move.names), target)
            elif move.is_directory:
                directories.append(target)  # also one into which all came before a kill, as that may not be on disk
            else:
                site.tree.remove(target)
        if not site.tree.sync_all(len(directories)):
            site.tree.for_each(directories, site.tree.sync_directory)
        site.tree.sync_directory(site.root)
