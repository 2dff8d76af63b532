"""What lies in a store directory: a module for each structure on disk, read only.

The room answers: what do these files say? It believes nothing; what can be proved is the room above
(rmqstore_spark.store).

* Directories: layout (which file is what), kinds (what a broker may keep in another form), written (our writer's
  record).
* The log: segments, window (the part of a segment that is in memory), commitlog (`SegmentReader`: from unit to unit),
  dledger (a log of DLedger's entries), entries (the order of entries that wrap units), many_headers, past_damage (where
  reading goes on after damage), body_sums (checksums of bodies that overlap), proofs (bytes that tell a store from
  another one).
* Logs of single queues: compaction (of compaction topics), tiered (a tiered store).
* ConsumeQueues: consumequeue (`Queue`), batch_queue (`BatchQueue`, a BatchCQ), queues (`ConsumeQueues`, all of a
  store), expected_units (what the log says their units have to be), queue_cursor (`QueueCursor`, the one search along a
  queue), queue_heads (both ends of many), queue_sizes, consumequeue_ext. Those in
  RocksDB: rocksdb_units (keys and values), rocksdb_queues (`RocksDBQueue`, a `Queue` of the same form), rocksdb_ends
  (the outer records of many).
* Index files: indexfile (`IndexReader`).
* Small files: config (topics, groups, offsets), consumer_offsets (those of any size), rocksdb_config (the same in
  RocksDB), static_topics, checkpoint, epochs, timer, rocksdb_popped.
"""
