"""From a selection to record batches: planned once, then read task by task. Knows no Spark."""
