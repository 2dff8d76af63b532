"""Tests with many cases, or with many random stores, of which `make test-fast` takes a few: all together they take
longer than what else is quick.

Source of the choice: the processor time of each test; these took more than half of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

# By test, how many of its cases stay quick, taken evenly from all.
QUICK = {
    "tests/cli/test_command.py::test_a_shell_completes_commands_and_options": 0,
    "tests/cli/test_command.py::test_a_shell_completes_names": 1,
    "tests/cli/test_command.py::test_an_interrupt_is_clean": 0,
    "tests/cli/test_odd_arguments.py::test_odd_arguments": 0,
    "tests/cli/test_streams.py::test_a_reader_that_has_gone_is_no_error": 0,
    "tests/cli/test_streams.py::test_an_output_of_ascii_gets_no_other_characters": 0,
    "tests/cli/test_streams.py::test_what_cannot_be_written_is_one_line": 1,
    "tests/cli/test_verdict.py::test_commands_mend_the_store": 4,
    "tests/face/test_backends.py::test_a_store": 1,
    "tests/face/test_backends.py::test_a_tiered_store": 1,
    "tests/face/test_copying.py::test_a_brokers_store": 1,
    "tests/face/test_copying_config.py::test_a_damaged_file": 12,
    "tests/face/test_copying_config.py::test_config_from": 4,
    "tests/face/test_salvage.py::test_files_have_the_size_of_most": 4,
    "tests/face/test_salvage.py::test_one_flipped_bit": 1,
    "tests/face/test_salvage.py::test_one_offset_among_many_messages": 1,
    "tests/face/test_salvage.py::test_the_end_of_the_log_is_lost": 6,
    "tests/kernel/test_batches.py::test_rows_are_those_of_the_reference": 0,
    "tests/kernel/test_expand.py::test_zlib_streams_of_all_kinds": 0,
    "tests/kernel/test_facts.py::test_the_gil_is_released": 1,
    "tests/kernel/test_scan.py::test_damaged_segments_read_as_the_oracle_reads_them": 0,
    "tests/kernel/test_select.py::test_damaged_logs_picked": 0,
    "tests/kernel/test_select.py::test_damaged_logs_scanned": 0,
    "tests/kernel/test_wrapped.py::test_any_stop": 0,
    "tests/machine/test_mutated_rocksdb.py::test_mutated_queues": 0,
    "tests/read/test_batch_sweeps.py::test_cut_at_every_byte": 0,
    "tests/read/test_batches.py::test_each_message_by_each_of_its_names": 0,
    "tests/read/test_deleted_meanwhile.py::test_what_is_left_comes": 1,
    "tests/read/test_deleted_meanwhile.py::test_while_more_and_more_is_deleted": 5,
    "tests/read/test_expiry.py::test_of_what_a_stream_is_about_to_read": 0,
    "tests/read/test_first_rows.py::test_segments_are_opened_when_their_turn_comes": 0,
    "tests/read/test_follow_crashes.py::test_turns_are_fair": 1,
    "tests/read/test_index_evidence.py::test_every_name_is_found_or_left_to_a_scan": 4,
    "tests/read/test_index_path.py::test_a_header_that_names_another_message_hides_none": 0,
    "tests/read/test_index_path.py::test_six_requests_a_file_besides_chains": 1,
    "tests/read/test_light_queues.py::test_selected_are_those_of_the_full_scan": 0,
    "tests/read/test_light_queues.py::test_trusted_queues_give_the_same": 0,
    "tests/read/test_parts.py::test_damage": 1,
    "tests/read/test_pinned.py::test_a_task_with_another_store": 3,
    "tests/read/test_queue_log_sweeps.py::test_rows_are_right_or_it_is_told": 0,
    "tests/read/test_read.py::test_random_store": 2,
    "tests/read/test_read.py::test_real_store": 1,
    "tests/read/test_read.py::test_spare_last_segment": 1,
    "tests/read/test_readonly.py::test_store_without_write_permission": 1,
    "tests/read/test_select.py::test_an_index_that_ends_with_an_old_message_behind_a_blank": 1,
    "tests/read/test_select.py::test_queues_in_rocksdb": 0,
    "tests/read/test_select_bytes.py::test_lookups_at_the_ends_of_the_log": 1,
    "tests/read/test_select_dledger.py::test_queues_that_lie": 0,
    "tests/read/test_select_queue_logs.py::test_a_tier_alone_and_beside_its_store": 0,
    "tests/read/test_select_queue_logs.py::test_last_values": 0,
    "tests/read/test_stored.py::test_a_file_that_has_become_shorter": 1,
    "tests/read/test_stored.py::test_the_same_bytes_in_few_rounds": 1,
    "tests/read/test_twins.py::test_two_damaged_copies": 1,
    "tests/read/test_unordered_times.py::test_a_record_that_says_nothing": 2,
    "tests/store/test_dledger.py::test_flipped_bits": 0,
    "tests/store/test_evidence.py::test_evidence_of_units": 1,
    "tests/store/test_indexfile.py::test_any_slots_and_items": 1,
    "tests/store/test_indexfile.py::test_each_file_alone_has_all_keys_of_what_it_covers": 2,
    "tests/store/test_logend.py::test_damage_right_after_a_truncation": 6,
    "tests/store/test_lying_storage.py::test_a_list_without_end_is_refused": 1,
    "tests/store/test_queue_bounds.py::test_bounds_of_worn_stores": 0,
    "tests/store/test_queue_coverage.py::test_no_message_is_covered_that_no_queue_names": 0,
    "tests/store/test_queue_coverage.py::test_what_a_queue_costs": 1,
    "tests/store/test_queue_cursor.py::test_as_all_units_looked_at": 1,
    "tests/store/test_queue_cursor.py::test_it_finds_the_first_unit_from_a_place_on": 1,
    "tests/store/test_queue_ends.py::test_ends_of_worn_stores": 0,
    "tests/store/test_schedule.py::test_memory_and_threads_are_given_back": 0,
    "tests/store/test_snapshot.py::test_nobody_else_looks_at_a_store": 0,
    "tests/store/test_wrapped_log.py::test_selections": 3,
    "tests/tables/test_check.py::test_nothing_is_wrong_after_the_advice_was_followed": 8,
    "tests/tables/test_check.py::test_planted_is_found": 4,
    "tests/tables/test_check.py::test_what_is_advised_about_a_damaged_queue_offset_helps": 6,
    "tests/tables/test_check_live.py::test_a_copy_whose_pages_are_of_different_moments": 10,
    "tests/tables/test_queues.py::test_offsets_at_what_rocketmq_finds": 1,
    "tests/tables/test_registry.py::test_tasks_of_several_stores_are_read_elsewhere": 1,
    "tests/tables/test_rocksdb_queues.py::test_nothing_is_changed": 1,
    "tests/write/test_append_worn.py::test_appends_to_worn_stores": 0,
    "tests/write/test_attack.py::test_a_malformed_journal_is_set_aside": 8,
    "tests/write/test_attack.py::test_links": 4,
    "tests/write/test_attack.py::test_names": 3,
    "tests/write/test_attack.py::test_what_is_no_regular_file": 4,
    "tests/write/test_attack_copy.py::test_a_target_where_somebody_has_been": 3,
    "tests/write/test_copy_tiered.py::test_a_tier_alone": 0,
    "tests/write/test_copy_tiered.py::test_beside_its_store": 0,
    "tests/write/test_copy_tiered.py::test_many_queues": 0,
    "tests/write/test_copy_tiered.py::test_selected_messages": 0,
    "tests/write/test_copy_tiered.py::test_what_is_damaged_is_refused": 0,
    "tests/write/test_descriptors.py::test_all_or_nothing_with_any_limit": 0,
    "tests/write/test_descriptors.py::test_of_any_number_of_queues": 0,
    "tests/write/test_indexfiles.py::test_what_is_in_no_index_stands_between_two_files": 1,
    "tests/write/test_kinds.py::test_what_a_broker_made": 5,
    "tests/write/test_kinds.py::test_what_is_in_rocksdb": 4,
    "tests/write/test_modes.py::test_modes_stay": 12,
    "tests/write/test_odd_entries.py::test_readers": 10,
    "tests/write/test_rebuild.py::test_of_a_golden_store": 2,
    "tests/write/test_rebuild_batches.py::test_random_stores": 0,
    "tests/write/test_write.py::test_many_chunks_and_segments": 1,
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
