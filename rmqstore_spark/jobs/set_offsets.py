"""Consumer groups go on at another place: config/consumerOffset.json of a store on which no broker runs, changed in
place, all or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

import pyarrow as pa

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.jobs.starts import Started, as_table, starts_of
from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import (
    LIGHT_OFFSETS,
    MEMBERS,
    OFFSETS,
    Table,
    has_one_offset,
    offset_entries,
    read,
)
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
        return NewConfig({name: _changed(table, found)})

    if is_tried and not is_writable(root, Files()):
        return as_table(starts_of(Snapshot.find(root, Files()), starts, _ASKED))
    change_config(root, make, is_tried)
    return as_table(found)


def _file_of(store: Snapshot) -> tuple[str, Table]:
    """The file with the groups' offsets, and what is in it.

    Raises:
        DamagedStoreError: a file cannot be parsed, or two of them have offsets.
    """
    files = store.files.unlinked()
    tables = {}
    for name in OFFSETS:
        tables[name], why = read(store.root, name, files)
        if why is not None and name in store.sound_offsets:
            raise DamagedStoreError(
                f"{why}: too large to be changed here; `rmqstore copy --group-offset` makes a new store with other "
                "offsets, or mqadmin resetOffsetByTime sets them once the broker runs"
            )
        if why is not None:
            raise DamagedStoreError(f"{why}; `rmqstore rebuild --config` takes its backup, or says what is lost")
    having = [name for name, table in tables.items() if offset_entries(table)]
    if len(having) > 1:
        path, other = (os.path.join(store.root, "config", name) for name in having)
        raise DamagedStoreError(
            f"{path}: expected offsets of groups in one file, found others in {other}, which a broker with enableLmq "
            "takes instead: move the one away that the broker does not take"
        )
    name = (having or OFFSETS[:1])[0]
    return name, tables[name]


def _changed(table: Table, found: Iterable[Started]) -> bytes:
    """The text of the file with other offsets; all else stays as it is."""
    entries, light = ({**table.get(member, {})} for member in (MEMBERS[OFFSETS[0]], LIGHT_OFFSETS))
    for each in found:
        topic, queue_id = each.queue
        name = f"{topic}@{each.group}"
        if not has_one_offset(each.group):
            entries[name] = {**entries.get(name, {}), str(queue_id): each.offset}
        elif queue_id == 0:
            light[name] = each.offset
    version = {"dataVersion": next_version(table, milliseconds_now())} if "dataVersion" in table else {}
    changed = {MEMBERS[OFFSETS[0]]: entries, **({LIGHT_OFFSETS: light} if light else {})}
    return json.dumps({**table, **version, **changed}, indent="\t").encode()
