"""From a selection to record batches. Knows no Spark.

The room answers: which messages are selected, and where are they? scan has `Scan`, with which everything below Spark
reads; explain says in words how a read finds its messages. Below them: follow (a log that grows), plan (on the driver:
from options to tasks), run (in a task: from a piece to record batches), pieces (the values that plan hands to run:
`Task` and `Range`).

Read pieces/task first, then plan/planner, then run/batches.
"""
