"""The tables of a store: a module for each table, and check for what is wrong.

table has `Table`: columns, options, rows. registry names all tables and reads them; methods (generated) are those of
`Store`. Shared by several tables are columns, entries (values of a file of configuration), grouped (what the log says
of one message, side by side), picked (messages as rows) and positions (places for startingOffsets). topics, queues,
groups, offsets, segments, consumequeue, indexfiles, index, checkpoint, epochs, logicqueues are read from the store's
own files; delayed, transactions, inflight and traces are made of messages; usage adds messages up, from queues or the
log; messages is the first table, and read by rmqstore_spark.read. unqueued counts what no queue file has. dataset gives
any table to engines that take a `pyarrow.dataset.Dataset`, tasks to those that read tasks; wanted says what both read
for a filter and columns.
"""
