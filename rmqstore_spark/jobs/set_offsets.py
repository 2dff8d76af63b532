"""Consumer groups go on at another place: config/consumerOffset.json, or what a broker with enableLmq has instead, of a
store on which no broker runs, changed in place, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.jobs.starts import Started, as_table, starts_of
from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import Table, offset_entries, offsets_table, read
from rmqstore_spark.store.structures.kinds import is_writable
from rmqstore_spark.write.build.topics import next_version
from rmqstore_spark.write.config_file import NewConfig, change_config

_ASKED = "option 'groupOffset'"


def set_offsets(root: str, starts: Mapping[str, Start], is_tried: bool) -> pa.Table:
    """Let groups go on elsewhere.

    Args:
        root: the store directory, absolute.
        starts: by group.
        is_tried: whether the store stays as it is. Then it may be of any kind: what is found is what a copy with the
            same option would have.

    Returns:
        A row for each queue whose offset is set (starts.SCHEMA).

    Raises:
        OptionError: a group, topic, queue or offset that the store does not have.
        RmqStoreError: a broker runs on the store, or it cannot be written to. The store is unchanged.
    """
    found: list[Started] = []

    def make(store: Snapshot) -> NewConfig:
        name, table = _file_of(store)
        found[:] = starts_of(store, starts, _ASKED)
        return NewConfig({name: _changed(table, found, name)})

    if is_tried and not is_writable(root, Files()):
        return as_table(starts_of(Snapshot.find(root, Files()), starts, _ASKED))
    change_config(root, make, is_tried)
    return as_table(found)


def _file_of(store: Snapshot) -> tuple[str, Table]:
    """The file with the groups' offsets, and what is in it.

    Raises:
        DamagedStoreError: it cannot be parsed.
    """
    name = store.offsets_files.name
    table, why = read(store.root, name, store.files.unlinked())
    if why is not None and name in store.sound_offsets:
        raise DamagedStoreError(
            f"{why}: too large to be changed here; `rmqstore copy --group-offset` makes a new store with other "
            "offsets, or mqadmin resetOffsetByTime sets them once the broker runs"
        )
    if why is not None:
        raise DamagedStoreError(f"{why}; `rmqstore rebuild --config` takes its backup, or says what is lost")
    return name, table


def _changed(table: Table, found: Iterable[Started], file: str) -> bytes:
    """The text of the file, by its name, with other offsets; all else stays as it is."""
    entries = offset_entries(table)
    for each in found:
        topic, queue_id = each.queue
        name = f"{topic}@{each.group}"
        entries[name] = {**entries.get(name, {}), str(queue_id): each.offset}
    version = {"dataVersion": next_version(table, milliseconds_now())} if "dataVersion" in table else {}
    return json.dumps({**table, **version, **offsets_table(entries, file)}, indent="\t").encode()
