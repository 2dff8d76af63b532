"""What was asked for: options, and the rows that they select. Knows no store.

options has the only table of options (`OPTIONS`), and `ReadOptions` and `WriteOptions`, what they become. option_types
says what each takes, option_values what a text means, option_texts what a Python value's text is; stream_options are
those of streams. selection has `Selection`: conditions on a message that all must hold. pattern is the regular
expressions that `subscribePattern` takes.
"""
