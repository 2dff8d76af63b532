"""Tests with many cases, or with many random stores, of which `make test-fast` takes a few: all together they take
longer than what else is quick.

Source of the choice: `pytest --durations=0` over the quick tests; these took a third of their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

# By test, how many of its cases stay quick, taken evenly from all.
QUICK = {
    "tests/face/test_backends.py::test_a_store": 1,
    "tests/face/test_copying_config.py::test_a_damaged_file": 24,
    "tests/face/test_salvage.py::test_files_have_the_size_of_most": 4,
    "tests/face/test_salvage.py::test_one_flipped_bit": 1,
    "tests/face/test_salvage.py::test_the_end_of_the_log_is_lost": 6,
    "tests/read/test_deleted_meanwhile.py::test_what_is_left_comes": 1,
    "tests/read/test_deleted_meanwhile.py::test_while_more_and_more_is_deleted": 5,
    "tests/read/test_index_evidence.py::test_every_name_is_found_or_left_to_a_scan": 4,
    "tests/read/test_parts.py::test_damage": 1,
    "tests/read/test_pinned.py::test_a_task_with_another_store": 6,
    "tests/read/test_read.py::test_random_store": 2,
    "tests/read/test_stored.py::test_the_same_bytes_in_few_rounds": 1,
    "tests/store/test_evidence.py::test_evidence_of_units": 1,
    "tests/store/test_lying_storage.py::test_a_list_without_end_is_refused": 1,
    "tests/store/test_queue_cursor.py::test_as_all_units_looked_at": 1,
    "tests/tables/test_check.py::test_nothing_is_wrong_after_the_advice_was_followed": 8,
    "tests/tables/test_check.py::test_what_is_advised_about_a_damaged_queue_offset_helps": 6,
    "tests/tables/test_check_live.py::test_a_copy_whose_pages_are_of_different_moments": 10,
    "tests/tables/test_registry.py::test_tasks_of_several_stores_are_read_elsewhere": 3,
    "tests/write/test_append_worn.py::test_appends_to_worn_stores": 0,
    "tests/write/test_attack.py::test_a_malformed_journal_is_set_aside": 8,
    "tests/write/test_attack.py::test_links": 8,
    "tests/write/test_attack.py::test_names": 6,
    "tests/write/test_attack.py::test_what_is_no_regular_file": 8,
    "tests/write/test_descriptors.py::test_all_or_nothing_with_any_limit": 0,
    "tests/write/test_descriptors.py::test_of_any_number_of_queues": 0,
    "tests/write/test_indexfiles.py::test_what_is_in_no_index_stands_between_two_files": 2,
    "tests/write/test_kinds.py::test_what_a_broker_made": 5,
    "tests/write/test_kinds.py::test_what_is_in_rocksdb": 4,
    "tests/write/test_modes.py::test_modes_stay": 12,
    "tests/write/test_odd_entries.py::test_readers": 20,
    "tests/write/test_rebuild.py::test_of_a_golden_store": 2,
}


def slow_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that the quick tests leave out."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for name, quick in QUICK.items():
        some = cases[name]
        kept = {(2 * number + 1) * len(some) // (2 * quick) for number in range(quick)}
        yield from (item for number, item in enumerate(some) if number not in kept)
