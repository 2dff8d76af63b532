"""Record batches of several jobs, made on all cores, and given in the order of the jobs.

Making a batch spends its time in the kernel, in the file system and in decompression, which all release Python's lock.
The taker of batches makes some, too: the batches of the job whose turn it is come from the processor's cache, and the
taker seldom has to be woken up. Threads work ahead of the taker, and no thread waits: when enough batches are ready, a
thread puts its job aside and ends, and the taker starts the job again. So a reader that is closed, forgotten or
interrupted leaves no thread behind, and no thread hangs.
"""

import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.cores import cores

BATCH_BYTES = 4 * 1024 * 1024  # of Arrow data: handing a batch over takes as long as decoding some 100 KiB
_ENOUGH = 32 * 1024 * 1024  # bytes that are ready and not taken yet; they lie in buffers of up to twice that
_FEW = _ENOUGH // 2  # bytes: at so many or fewer, threads go on
_AHEAD = 16  # jobs that may be begun before their turn

Batches = Iterator[pa.RecordBatch]


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Job:
    """A source of batches.

    Attributes:
        start: begins to make the batches; one thread at a time works on them.
        is_void: whether the batches are not wanted after all. Asked when the job's turn has come.
    """

    start: Callable[[], Batches]
    is_void: Callable[[], bool] = _never


def in_order(jobs: Iterable[Job], workers: int | None = None) -> Batches:
    """The batches of all jobs, job by job.

    Args:
        jobs: void ones give nothing. Jobs are asked for a few at a time: there may be millions.
        workers: how many threads work at the same time, including the caller's; the number of cores by default.

    Raises:
        The error of a job, in the place of the batch that failed; an interrupt of the caller at once.
    """
    coming = iter(jobs)
    first = list(itertools.islice(coming, workers or cores()))
    workers = len(first)
    coming = itertools.chain(first, coming)
    if workers <= 1:
        for job in coming:
            if not job.is_void():
                yield from job.start()
        return
    work = _Work(coming, workers)
    try:
        while work.go_on():
            while (batch := work.next_batch()) is not None:
                yield batch
    finally:
        work.stop()


class _Job:
    """A job with the state of its work."""

    def __init__(self, number: int, job: Job) -> None:
        self.number = number
        self.is_void = job.is_void
        self.ready: deque[tuple[pa.RecordBatch, int]] = deque()  # batches, each with its bytes
        self.is_worked_on = False
        self.is_done = False
        self._start = job.start
        self._batches: Batches | None = None  # set once the job has begun
        self._error: BaseException | None = None

    def make(self) -> pa.RecordBatch | None:
        """The job's next batch; None after the last one. Only the thread that works on the job may call this."""
        try:
            if self._batches is None:
                self._batches = self._start()
            batch = next(self._batches, None)
        except BaseException as why:
            self._error = why
            batch = None
        if batch is None:
            self.is_done = True
        return batch

    def end(self) -> None:
        """Raise the error that the job raised, if any."""
        if self._error is not None:
            raise self._error

    @property
    def is_interrupted(self) -> bool:
        """Was the job ended by something other than an error of its own?"""
        return self._error is not None and not isinstance(self._error, Exception)


class _Work:
    """Jobs that several threads work on, in the order in which their batches are taken.

    Large because the taker and the workers share one lock, and with it all that they tell each other.

    Args:
        workers: how many threads work at the same time, including the taker's.
    """

    def __init__(self, jobs: Iterable[Job], workers: int) -> None:
        self._coming = itertools.starmap(_Job, enumerate(jobs))
        self._jobs: deque[_Job] = deque()  # the one whose batches are taken now, and those that may be begun
        self._workers = workers
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._bytes = 0  # of the batches that are ready
        self._current = -1  # the number of the job whose batches are taken now
        self._is_waiting = False  # whether the taker waits
        self._is_stopped = False

    def go_on(self) -> bool:
        """Go on to the next job, and forget the one before. False after the last one."""
        with self._changed:
            if self._current >= 0:
                self._jobs.popleft()
            self._jobs.extend(itertools.islice(self._coming, self._workers + _AHEAD - len(self._jobs)))
            self._current += 1
            return bool(self._jobs)

    def next_batch(self) -> pa.RecordBatch | None:
        """The next batch of the job whose turn it is, None after the last one."""
        job = self._jobs[0]
        while True:
            with self._changed:
                if job.is_void():
                    self._bytes -= sum(nbytes for _, nbytes in job.ready)
                    job.ready.clear()
                    return None
                if self._bytes <= _FEW:
                    self._start_threads()
                if job.ready:
                    batch, nbytes = job.ready.popleft()
                    self._bytes -= nbytes
                    return batch
                if job.is_done:
                    job.end()
                    return None
                mine = self._next_job(is_taker=True)
                if mine is None:  # a thread is about to finish a batch of this job, and others have no room
                    self._is_waiting = True
                    self._changed.wait()
                    continue
            batch = mine.make()
            if mine.is_interrupted:
                mine.end()
            with self._changed:
                mine.is_worked_on = False
                if mine is job and batch is not None:
                    return batch
                self._add(mine, batch)

    def stop(self) -> None:
        """Let the threads end after the batches that they are making, and wait for them."""
        with self._changed:
            self._is_stopped = True
            threads = list(self._threads)
        for thread in threads:
            # An interrupt can come before a thread has started, and garbage be collected in any thread.
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _start_threads(self) -> None:
        while len(self._threads) < self._workers - 1 and (job := self._next_job(is_taker=False)) is not None:
            context = contextvars.copy_context()  # threads run in the context of the taker's call
            thread = threading.Thread(target=context.run, args=(self._run, job), name="rmqstore-decode")
            self._threads.add(thread)
            thread.start()

    def _next_job(self, *, is_taker: bool) -> _Job | None:
        """A job to work on, which no other thread gets then; None where enough is ready."""
        jobs = list(self._jobs)
        for job in jobs if is_taker else jobs[1:] + jobs[:1]:
            if not job.is_worked_on and not job.is_done and self._has_room(job):
                job.is_worked_on = True
                return job
        return None

    def _has_room(self, job: _Job) -> bool:
        """May a job make one more batch? A job that is waited for always may."""
        return self._bytes < _ENOUGH or (job.number == self._current and not job.ready)

    def _run(self, job: _Job) -> None:
        """The work of a thread."""
        following: _Job | None = job
        while following is not None:
            batch = following.make()
            with self._changed:
                self._add(following, batch)
                if self._is_stopped or following.is_done or not self._has_room(following):
                    following.is_worked_on = False
                    following = None if self._is_stopped else self._next_job(is_taker=False)
                if following is None:
                    self._threads.discard(threading.current_thread())

    def _add(self, job: _Job, batch: pa.RecordBatch | None) -> None:
        """Note that a batch of a job is ready, or, with None, that the job has ended."""
        if batch is not None and job.number >= self._current:  # else the job is void
            nbytes = batch.get_total_buffer_size()  # of slices too much; batch.nbytes takes 50 us
            job.ready.append((batch, nbytes))
            self._bytes += nbytes
        if self._is_waiting and (job.number == self._current or self._bytes < _ENOUGH):
            self._is_waiting = False
            self._changed.notify()
