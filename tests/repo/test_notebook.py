"""Every notebook runs from top to bottom: on the sample store, without any, and on stores of other kinds."""

from collections.abc import Callable
from pathlib import Path

import nbclient
import nbformat
import pyarrow as pa
import pytest
from oracle import golden
from support.patience import HANG

from rmqstore_spark import write_store

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LONG = pytest.mark.long
NIGHTLY = [LONG, pytest.mark.nightly]
# In both places where Jupyter may start.
PLACES = {
    "after_a_crash.ipynb": ROOT,
    "explore_store.ipynb": ROOT / "notebooks",
    "follow_a_broker.ipynb": ROOT,
    "follow_one_message.ipynb": ROOT,
}
NOTEBOOKS = [pytest.param(path, id=path.name, marks=LONG) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMQ_STORE", raising=False)
    assert pictures(executed(path, PLACES[path.name]))


def binary_store(place: Path) -> Path:
    """Bodies that are not text; no keys, no ids, no consumer groups."""
    rows = pa.table({"topic": ["Bytes", "More"] * 50, "body": [bytes([255 - i, 0, 200 + i % 50]) for i in range(100)]})
    write_store(place / "store", rows, mappedFileSizeCommitLog=1 << 20)
    return place / "store"


def empty_store(place: Path) -> Path:
    """What a broker has that got no message yet."""
    write_store(place / "store", pa.table({"body": pa.array([], pa.binary())}), topic="None")
    return place / "store"


def golden_store(place: Path) -> Path:
    """A real broker's, with nothing wrong."""
    return golden.unpack("4.9.7", place / "store")


def damaged_store(place: Path) -> Path:
    """A real broker's, with a stretch of the log overwritten."""
    store = golden.unpack("4.9.7", place / "store")
    with min((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(20_000)
        log.write(bytes(900))
    return store


def unwritten_store(place: Path) -> Path:
    """A real broker's, which did not stop cleanly, with pages that were never on the disk."""
    store = golden.unpack("5.1.4", place / "store")
    (store / "abort").touch()
    with min((store / "commitlog").iterdir()).open("r+b") as log:
        log.seek(5 * 4096)
        log.write(bytes(8192))
    return store


def store_without_a_file(place: Path) -> Path:
    """A real broker's, with a file of the log lost: what is left is whole."""
    store = golden.unpack("5.1.4", place / "store")
    sorted((store / "commitlog").iterdir())[1].unlink()
    return store


def no_store(place: Path) -> None:
    """The notebook has to make one."""


# What a notebook says of a store, and whether there is something to draw.
CASES = [
    pytest.param(
        "after_a_crash",
        no_store,
        ["messages, all the same", "messages saved in merged, 0 lost"],
        True,
        marks=NIGHTLY,
    ),
    pytest.param(
        "after_a_crash", binary_store, ["Nothing is wrong with this store.", "nothing to save"], False, marks=NIGHTLY
    ),
    ("after_a_crash", damaged_store, ["messages, all the same", "lostMessages", "failing-group"], True),
    pytest.param("after_a_crash", unwritten_store, ["unwrittenPages", "messages, all the same"], True, marks=NIGHTLY),
    pytest.param(
        "after_a_crash",
        store_without_a_file,
        ["were in files that are no longer there", "all the same"],
        False,
        marks=NIGHTLY,
    ),
    pytest.param(
        "after_a_crash",
        empty_store,
        ["Nothing is wrong with this store.", "The log has no damage"],
        False,
        marks=NIGHTLY,
    ),
    pytest.param("follow_one_message", no_store, ["We follow the first.", "order-99"], True, marks=NIGHTLY),
    pytest.param(
        "follow_one_message",
        binary_store,
        ["No message has the key or id retried-0.", "no consumer groups"],
        True,
        marks=LONG,
    ),
    pytest.param(
        "follow_one_message", golden_store, ["retry delayed", "%DLQ%failing-group", "UNKNOW-0"], True, marks=LONG
    ),
    pytest.param("follow_one_message", damaged_store, ["retry delayed"], True, marks=NIGHTLY),
    (
        "follow_one_message",
        empty_store,
        ["There is no message in this store.", "No consumer group has an offset"],
        False,
    ),
    pytest.param(
        "explore_store", binary_store, ["0x", "No message has a key", "have no properties"], True, marks=NIGHTLY
    ),
    pytest.param("explore_store", golden_store, ["plain-17", "storeHost"], True, marks=NIGHTLY),
    pytest.param("explore_store", empty_store, ["No topic of users", "No message has a key"], False, marks=NIGHTLY),
    pytest.param("follow_a_broker", binary_store, ["0 rows", "No message came meanwhile."], False, marks=NIGHTLY),
    pytest.param("follow_a_broker", golden_store, ["0 rows", "No message came meanwhile."], False, marks=NIGHTLY),
]


@pytest.mark.parametrize(("name", "make", "said", "is_drawn"), CASES)
def test_on_another_store(
    name: str,
    make: Callable[[Path], Path | None],
    said: list[str],
    is_drawn: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = make(tmp_path)
    cells = executed_elsewhere(name, store, tmp_path, monkeypatch)
    text = "".join(map(shown, cells))
    assert [each for each in said if each not in text] == []
    assert bool(pictures(cells)) == is_drawn


def executed_elsewhere(
    name: str, store: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[nbformat.NotebookNode]:
    """The code cells, executed in a directory where nothing is."""
    place = tmp_path / "nothing" / "here"
    place.mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    if store is None:
        monkeypatch.delenv("RMQ_STORE", raising=False)
    else:
        monkeypatch.setenv("RMQ_STORE", str(store))
    return executed(ROOT / "notebooks" / f"{name}.ipynb", place)


def executed(path: Path, place: Path) -> list[nbformat.NotebookNode]:
    """The code cells, executed: it raises on the first one that fails."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs = []
    nbclient.NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": str(place)}}).execute()
    return code


def pictures(cells: list[nbformat.NotebookNode]) -> list[str]:
    """What cells have drawn."""
    outputs = [output.get("data", {}) for cell in cells for output in cell.outputs]
    return [data["image/png"] for data in outputs if "image/png" in data]


def shown(cell: nbformat.NotebookNode) -> str:
    """What a cell has printed or shown, as text; its HTML, where text may be cut off, too."""
    datas = [output.get("data", {}) for output in cell.outputs]
    texts = [output.get("text", "") for output in cell.outputs]
    return "\n".join(texts + [data.get(kind, "") for data in datas for kind in ("text/plain", "text/html")])
