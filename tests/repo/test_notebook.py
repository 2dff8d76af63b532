"""Every notebook runs from top to bottom."""

from pathlib import Path

import nbclient
import nbformat
import pytest
from support.patience import HANG

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


# In both places where Jupyter may start.
PLACES = {
    "after_a_crash.ipynb": ROOT,
    "explore_store.ipynb": ROOT / "notebooks",
    "follow_a_broker.ipynb": ROOT,
    "follow_one_message.ipynb": ROOT,
}


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_every_cell_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": str(PLACES[path.name])}})
    client.execute()  # raises on the first cell that fails
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
