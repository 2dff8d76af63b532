"""`%load_ext rmqstore_spark`: Arrow tables in a notebook are shown as people read them."""

from typing import Any

import pyarrow as pa

from rmqstore_spark.notebook.tables import table_html


def load(shell: Any) -> None:
    """Have an IPython shell show every `pyarrow.Table` as `table_html` does."""
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(pa.Table, table_html)


def unload(shell: Any) -> None:
    """Undo load()."""
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.pop(pa.Table, None)
