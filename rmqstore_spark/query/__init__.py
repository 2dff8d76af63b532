"""Options, and the rows that they select. Nothing here knows a store.

options has the only table of options (`OPTIONS`), and their parsed form, `ReadOptions` and `WriteOptions`.
option_types says which values each option takes, option_values parses the texts of those that select rows (instants
those of times), option_texts makes texts of a Python program's values. stream_options has the options of streams,
copy_options those of copies (copy_values parses their texts).
selection has `Selection`: conditions on a message that all must hold. pattern has the regular expressions of
`subscribePattern`, sql92 the expressions of RocketMQ's filter language. conditions makes a Selection of a condition on
one column, expressions one of a filter of Arrow's.
"""
