"""Record batches of several jobs, made by threads, and given in the order of the jobs.

What makes a batch spends its time in the kernel, in the file system and in decompression, which all let go of Python's
lock. No thread waits for anybody: where enough is ready, it puts its job aside and ends, and whoever takes batches
starts it again. So a reader that is closed, forgotten or interrupted leaves no thread behind, nor one that hangs.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

_ENOUGH = 64 * 1024 * 1024  # bytes that are ready and that nobody has taken
_FEW = _ENOUGH // 2  # so many or fewer: threads go on

Batches = Iterator[pa.RecordBatch]


def in_order(jobs: list[Callable[[], Batches]], threads: int | None = None) -> Batches:
    """The batches of all jobs, those of the first one first.

    Args:
        jobs: each makes its batches when it is called; one thread at a time works on it.
        threads: how many work at the same time; as many as there are cores if it is not given.

    Raises:
        What a job raises, at the place of the batch that it did not make.
    """
    threads = min(threads or len(os.sched_getaffinity(0)), len(jobs))
    if threads <= 1:
        for job in jobs:
            yield from job()
        return
    work = _Work(jobs, threads)
    try:
        for number in range(len(jobs)):
            while (batch := work.next_of(number)) is not None:
                yield batch
    finally:
        work.stop()


class _Job:
    """A job as far as it has come."""

    def __init__(self, number: int, start: Callable[[], Batches]) -> None:
        self.number = number
        self.start = start
        self.batches: Batches | None = None  # since it has begun
        self.ready: deque[pa.RecordBatch] = deque()
        self.is_worked_on = False
        self.is_done = False
        self.error: BaseException | None = None


class _Work:
    def __init__(self, jobs: list[Callable[[], Batches]], threads: int) -> None:
        self._jobs = [_Job(number, job) for number, job in enumerate(jobs)]
        self._most = threads
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._bytes = 0  # of what is ready
        self._current = 0  # the job whose batches are taken now
        self._is_stopped = False

    def next_of(self, number: int) -> pa.RecordBatch | None:
        """The next batch of a job, None after the last one; earlier jobs are forgotten."""
        job = self._jobs[number]
        with self._changed:
            self._current = number
            while not job.ready and not job.is_done:
                self._start_threads()
                self._changed.wait()
            if not job.ready:
                if job.error is not None:
                    raise job.error
                return None
            batch = job.ready.popleft()
            self._bytes -= batch.nbytes
            if self._bytes <= _FEW:
                self._start_threads()
            return batch

    def stop(self) -> None:
        """Let the threads end after the batch that each is making, and wait for that."""
        with self._changed:
            self._is_stopped = True
            threads = list(self._threads)
        for thread in threads:
            # An interrupt can come before a thread has started, and garbage be collected in any thread.
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _start_threads(self) -> None:
        while len(self._threads) < self._most and (job := self._next_job()) is not None:
            thread = threading.Thread(target=self._run, args=(job,), name="rmqstore-decode")
            self._threads.add(thread)
            thread.start()

    def _next_job(self) -> _Job | None:
        """A job to work on, which nobody else gets then; None where there is enough."""
        for job in self._jobs[self._current : self._current + 2 * self._most]:
            if not job.is_worked_on and not job.is_done and self._has_room(job):
                job.is_worked_on = True
                return job
        return None

    def _has_room(self, job: _Job) -> bool:
        """May it make a batch more? What is waited for always may."""
        return self._bytes < _ENOUGH or (job.number == self._current and not job.ready)

    def _run(self, job: _Job) -> None:
        """What a thread does."""
        following: _Job | None = job
        while following is not None:
            self._work_on(following)
            with self._changed:
                following.is_worked_on = False
                following = None if self._is_stopped else self._next_job()
                if following is None:
                    self._threads.discard(threading.current_thread())
                self._changed.notify_all()

    def _work_on(self, job: _Job) -> None:
        """Make batches of a job until it is done or there are enough."""
        try:
            if job.batches is None:
                job.batches = job.start()
            for batch in job.batches:
                with self._changed:
                    job.ready.append(batch)
                    self._bytes += batch.nbytes
                    self._changed.notify_all()
                    if self._is_stopped or not self._has_room(job):
                        return
        except BaseException as why:
            job.error = why
        job.is_done = True
