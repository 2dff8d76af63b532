"""The number of cores that this process may use: the limit of its container, where the machine has more."""

import contextlib
import functools
import os

_CGROUPS = "/sys/fs/cgroup"


_is_one_of_many = False


def work_beside_others() -> None:
    """Declare that this process is one of several with about one core each, as Spark's workers are."""
    global _is_one_of_many
    _is_one_of_many = True


def workers() -> int:
    """The number of threads that may read or decode at the same time in this process."""
    return 1 if _is_one_of_many else cores()


def cores() -> int:
    """The number of cores that the process may run on, limited by the CPU time of its control groups; at least one."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *_quotas(_CGROUPS)]))


@functools.cache  # each plan asks three times, and every answer takes two dozen small files
def _quotas(root: str) -> list[int]:
    """The cores' worth of CPU time that each control group allows, rounded up; empty where none sets a limit.

    Args:
        root: the directory of control groups. The answer of the first call is kept for each root.
    """
    found = []
    for directory in _groups(root):
        with contextlib.suppress(OSError, ValueError):
            found += _version_2(directory) if os.path.exists(f"{directory}/cpu.max") else _version_1(directory)
    return found


def _groups(top: str) -> list[str]:
    """The directories of the process's control groups and of their parents. In a container the process's own group is
    mostly the uppermost."""
    paths = {"/"}
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, _, path = line.rstrip("\n").split(":", 2)
            while path not in paths:
                paths.add(path)
                path = os.path.dirname(path)
    return [os.path.join(root, path.lstrip("/")) for root in (top, f"{top}/cpu") for path in sorted(paths)]


def _version_2(directory: str) -> list[int]:
    with open(f"{directory}/cpu.max") as file:
        quota, period = file.read().split()
    return [] if quota == "max" else [-(-int(quota) // int(period))]


def _version_1(directory: str) -> list[int]:
    with open(f"{directory}/cpu.cfs_quota_us") as file, open(f"{directory}/cpu.cfs_period_us") as of:
        quota, period = int(file.read()), int(of.read())
    return [-(-quota // period)] if quota > 0 else []
