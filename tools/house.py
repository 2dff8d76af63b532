"""Draws docs/house.svg: which module lies in which room, and which room imports which. `make house` runs it.

The picture is made from the code. Python's imports are read by `ast`, also those in functions and those for types only;
those of the kernel, `#include` and Cython's too, by a pattern. tests/repo/test_house.py fails where the picture is no
longer that of the code. An import by a name that is only known at run time (importlib.import_module) is not seen; there
is none.
"""

import ast
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs/house.svg")

Graph = dict[str, set[str]]  # each module, and the modules of this project that it imports

_PYTHON = ("rmqstore_spark", "native_io")
_INCLUDE = re.compile(r'^(?:#include|cdef extern from) "([a-z0-9_]+\.h)"', re.MULTILINE)
_CIMPORT = re.compile(r"^from native_io\.(\w+) c?import", re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """Modules that may know the same things.

    Attributes:
        title: its name.
        text: what it is for.
        color: of the arrows that leave it.
        inside: its modules, or a prefix of their names that ends with a dot.
        floors: the rooms inside it, from top to bottom, each with what it is for. What is in none of them is above.
    """

    title: str
    text: str
    color: str
    inside: tuple[str, ...]
    floors: tuple[tuple[str, str], ...] = ()


def _modules(names: str) -> tuple[str, ...]:
    return tuple(f"rmqstore_spark.{name}" for name in names.split())


# From top to bottom. What a room does not name itself falls to the one with the longest fitting prefix.
ROOMS = (
    Room(
        "face",
        "what a user calls",
        "#c2571a",
        ("pyspark_rmqstore", "rmqstore_spark", *_modules("__main__ api writing cli. notebook.")),
    ),
    Room("spark", "what Spark calls; the only room that knows pyspark", "#d4a017", ("rmqstore_spark.spark.",)),
    Room(
        "jobs",
        "what is done with whole stores: copies, salvages, histories, summaries",
        "#0e8a8a",
        ("rmqstore_spark.jobs.",),
    ),
    Room(
        "tables",
        "what else is in a store: topics, queues, groups and what is wrong",
        "#3b7dd8",
        ("rmqstore_spark.tables.",),
    ),
    Room(
        "read",
        "from a selection to record batches: planned on the driver, read by tasks",
        "#8a63d2",
        ("rmqstore_spark.read.",),
        (
            ("follow", "a log that grows, batch by batch"),
            ("plan", "on the driver: which pieces of which logs, and the cheapest way to the messages in each"),
            ("run", "in a task: from a piece to record batches"),
            ("pieces", "what the driver hands to a task"),
        ),
    ),
    Room(
        "write",
        "rows in, a store out; the only room that changes one",
        "#b23b3b",
        ("rmqstore_spark.write.",),
        (
            ("publish", "files that are ready come to count, all at once, whenever the writer is killed"),
            ("stage", "in a task: rows become units of messages"),
            ("build", "from staged units to the files of a store"),
            ("fs", "the only code that changes anything on a disk"),
        ),
    ),
    Room(
        "query",
        "options, and what they select",
        "#b0457b",
        ("rmqstore_spark.query.",),
    ),
    Room(
        "store",
        "what can be proved of a store, and its format; read only",
        "#2e8b57",
        ("rmqstore_spark.store.",),
        (
            ("structures", "what lies in a store: a module for each structure on disk"),
            ("rocksdb", "a reader of the databases that some brokers keep queues and configuration in"),
            ("io.remote", "files in object storage and HDFS"),
            ("io", "files: listed, opened, read by position, counted"),
            ("format", "bytes to values, without a file"),
        ),
    ),
    Room(
        "words",
        "columns, errors, amounts, progress, sorting; open to all",
        "#7a7a2a",
        _modules("amounts columns cores errors garbage kept once progress sorting temporary times waiting_numbers"),
    ),
    Room("native_io", "the kernel: buffers in, arrays out; files only in _io", "#6b7280", ("native_io",)),
)


def files(root: Path) -> dict[str, Path]:
    """The Python modules below a directory that is laid out like this repository."""
    found = {path.stem: path for path in root.glob("pyspark_rmqstore.py")}
    for package in _PYTHON:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def read(root: Path) -> Graph:
    """All modules below a directory, those of the kernel too, with what they import."""
    python = files(root)
    kernel = {f"native_io.{path.name}": path for path in sorted((root / "native_io").glob("*.h"))}
    kernel.update((f"native_io.{path.stem}", path) for path in sorted((root / "native_io").glob("*.pyx")))
    graph = {name: _imports(name, path, {*python, *kernel}) for name, path in python.items()}
    for name, path in kernel.items():
        # What a .pxd declares belongs to the module of its name.
        text = "".join(part.read_text() for part in (path, path.with_suffix(".pxd")) if part.exists())
        found = {f"native_io.{other}" for other in [*_INCLUDE.findall(text), *_CIMPORT.findall(text)]}
        graph[name] = found - {name}
    return graph


def _imports(name: str, path: Path, names: set[str]) -> set[str]:
    found = {_known(wanted, names) for wanted in imported(name, path)}
    return {module for module in found if module is not None and module != name}


def imported(name: str, path: Path) -> set[str]:
    """The full names of all that a module imports, of other projects too; of `from a import b` it is `a.b`."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{start}.{alias.name}" for alias in node.names)
    return found


def _known(wanted: str, names: set[str]) -> str | None:
    """The module of ours that a full name leads to: that module itself, or the one that has something of that name."""
    while wanted and wanted not in names:
        wanted = wanted.rpartition(".")[0]
    return wanted or None


def room_of(module: str) -> int:
    """The number of a module's room, counted from the top.

    Raises:
        ValueError: it has none.
    """

    def fit(inside: str) -> int:
        below = inside if inside.endswith(".") else f"{inside}."
        is_package = inside.endswith(".") or inside == "native_io"
        return len(inside) if module == inside or (is_package and f"{module}.".startswith(below)) else 0

    fits = [max(fit(inside) for inside in room.inside) for room in ROOMS]
    if not any(fits):
        raise ValueError(f"{module}: in no room; name it in ROOMS of tools/house.py, then call `make house`")
    return fits.index(max(fits))


def floor_of(module: str) -> int:
    """The number of the room inside a room that a module is in, counted from the top; 0 where it is in none."""
    floors = ROOMS[room_of(module)].floors
    fits = {
        number: len(name)
        for number, (name, _) in enumerate(floors, start=1)
        if any(f"{module}.".startswith(f"{inside}{name}.") for inside in ROOMS[room_of(module)].inside)
    }
    return max(fits, key=lambda number: fits[number], default=0)


def _room_in_words(module: str) -> str:
    room, floor = ROOMS[room_of(module)], floor_of(module)
    return f"{room.title}/{room.floors[floor - 1][0]}" if floor else room.title


def upward(graph: Graph) -> list[str]:
    """The imports that do not point down: to a room further up, or in a circle."""
    wrong = [
        f"{module} ({_room_in_words(module)}) imports {other} ({_room_in_words(other)})"
        for module, others in sorted(graph.items())
        for other in sorted(others)
        if (room_of(other), floor_of(other)) < (room_of(module), floor_of(module))
    ]
    for number in range(len(ROOMS)):
        inside = {module for module in graph if room_of(module) == number}
        rest, _ = _rows(graph, inside)
        wrong += [f"{', '.join(sorted(rest))}: import each other in a circle"] if rest else []
    return wrong


def _rows(graph: Graph, inside: set[str]) -> tuple[set[str], list[list[str]]]:
    """The modules of a room in rows, of which each imports only what is in rows below it; and what is in a circle."""
    rows: list[list[str]] = []
    rest = set(inside)
    while ready := sorted(module for module in rest if not graph[module] & rest - {module}):
        rows.insert(0, ready)
        rest -= set(ready)
    return rest, rows


# ---- the picture

_WIDTH = 1000
_LEFT, _RIGHT = 16, 800  # of the rooms; the arrows are beside them
_LANE = 22  # between two arrows
_BOX, _ROW = 22, 30
_TITLE = 30
_FLOOR = 24  # the name of a room inside a room
_GAP = 16
_ARROW = 16  # between two arrows at one room
_LETTER = 7.3  # of a monospaced letter of 12 px

_STYLE = """
  .card { fill: #ffffff } .room { fill: #f3f4f6; stroke: #c3c8d0 } .box { fill: #ffffff; stroke: #8b93a1 }
  text { fill: #1b1f24; font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
  .title { font-weight: bold; font-size: 14px } .text, .note { font-family: system-ui, 'DejaVu Sans', sans-serif }
  .text { fill: #4b5563 } .count { font-size: 11px; font-weight: bold }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117 } .room { fill: #161b22; stroke: #3d444d } .box { fill: #21262d; stroke: #6e7681 }
    text { fill: #e6edf3 } .text { fill: #9da7b3 }
  }"""


@dataclass
class _Drawn:
    """A room in the picture: where it is, and how many arrows it has already."""

    top: int
    bottom: int
    arrows: int = 0


def draw(graph: Graph) -> str:
    """The picture, as SVG."""
    out: list[str] = []
    y = 54
    drawn: list[_Drawn] = []
    for number, room in enumerate(ROOMS):
        top, y = y, _draw_room(out, graph, number, room, y)
        drawn.append(_Drawn(top, y))
        y += _GAP
    for source in range(len(ROOMS)):
        _draw_arrows(out, graph, source, drawn)
    head = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}">
<!-- Made by tools/house.py from the imports of the code: make house -->
<title>The modules of rmqstore-spark in their rooms, and which room imports which</title>
<style>{_STYLE}
</style>
<rect class="card" width="{_WIDTH}" height="{y}" rx="8"/>
<text class="note" x="{_LEFT}" y="24">A module imports only modules in rows below its own, in whatever room.</text>
<text class="note" x="{_LEFT}" y="42">An arrow: one room imports the other; its number: how many of the upper \
room's modules do so.</text>
"""
    return head + "\n".join(out) + "\n</svg>\n"


def _draw_room(out: list[str], graph: Graph, number: int, room: Room, top: int) -> int:
    """Draws a room and answers where it ends."""
    shown = {module for module in graph if room_of(module) == number and _is_shown(module, graph)}
    boxes: list[str] = []
    y = top + _TITLE
    for floor in range(len(room.floors) + 1):
        inside = {module for module in shown if floor_of(module) == floor}
        if floor > 0:
            name, text = room.floors[floor - 1]
            name = f"{room.title}/{name.replace('.', '/')}"
            boxes.append(
                f'<text x="{_LEFT + 14}" y="{y + 14}">{escape(name)}</text>'
                f'<text class="text" x="{_LEFT + 24 + _LETTER * len(name):g}" y="{y + 14}">{escape(text)}</text>'
            )
            y += _FLOOR
        y = _draw_modules(boxes, graph, inside, y)
    incoming = sum(_imports_room(graph, source, number) > 0 for source in range(len(ROOMS)) if source != number)
    bottom = max(y + 2, top + 14 + _ARROW * incoming)
    title_width = round(8.5 * len(room.title) + 12, 1)
    out += [
        f'<rect class="room" x="{_LEFT}" y="{top}" width="{_RIGHT - _LEFT}" height="{bottom - top}" rx="6"/>',
        f'<rect x="{_LEFT}" y="{top}" width="6" height="{bottom - top}" rx="3" fill="{room.color}"/>',
        f'<text class="title" x="{_LEFT + 14}" y="{top + 20}">{escape(room.title)}</text>',
        f'<text class="text" x="{_LEFT + 14 + title_width:g}" y="{top + 20}">{escape(room.text)}</text>',
        *boxes,
    ]
    return bottom


def _draw_modules(boxes: list[str], graph: Graph, inside: set[str], y: int) -> int:
    """Draws modules in rows, of which each imports only what is in rows below it, and answers where they end."""
    rest, rows = _rows(graph, inside)
    for row in [*rows, *([sorted(rest)] if rest else [])]:
        x = float(_LEFT + 12)
        for module in row:
            label = _label(module)
            width = round(_LETTER * len(label) + 14, 1)
            if x + width > _RIGHT - 12:
                x, y = float(_LEFT + 12), y + _ROW
            told = ", ".join(map(_full_label, sorted(graph[module]))) or "nothing of this project"
            boxes.append(
                f"<g><title>{escape(_full_label(module))} imports {escape(told)}</title>"
                f'<rect class="box" x="{x:g}" y="{y}" width="{width:g}" height="{_BOX}" rx="4"/>'
                f'<text x="{x + 7:g}" y="{y + 15}">{escape(label)}</text></g>'
            )
            x = round(x + width + 8, 1)
        y += _ROW
    return y


def _draw_arrows(out: list[str], graph: Graph, source: int, drawn: list[_Drawn]) -> None:
    """One line leaves a room to the right and goes down; at each room that it imports an arrow leaves the line."""
    targets = [t for t in range(len(ROOMS)) if t != source and _imports_room(graph, source, t)]
    if not targets:
        return
    color = ROOMS[source].color
    lane = _WIDTH - 16 - _LANE * source
    start = drawn[source].top + 16
    ends: list[int] = []
    for target in targets:
        # Rooms further down come later: their lines are further inside and their arrows higher, so few cross.
        y = drawn[target].bottom - 9 - _ARROW * drawn[target].arrows
        drawn[target].arrows += 1
        ends.append(y)
        count = _imports_room(graph, source, target)
        out.append(f'<path d="M{lane} {y} H{_RIGHT + 8}" stroke="{color}" stroke-width="1.5" fill="none"/>')
        out.append(f'<path d="M{_RIGHT + 1} {y} l9 -4 v8 z" fill="{color}"/>')
        out.append(f'<text class="count" x="{_RIGHT + 13}" y="{y - 2}" style="fill: {color}">{count}</text>')
    line = f"M{_RIGHT} {start} H{lane} V{max(ends)}" if max(ends) > start else f"M{_RIGHT} {start} H{lane} V{min(ends)}"
    out.append(f'<path d="{line}" stroke="{color}" stroke-width="1.5" fill="none"/>')


def _imports_room(graph: Graph, source: int, target: int) -> int:
    """How many modules of one room import something of another."""
    return sum(room_of(m) == source and any(room_of(other) == target for other in graph[m]) for m in graph)


def _is_shown(module: str, graph: Graph) -> bool:
    """Packages that are nothing but a name for what is in them have no box."""
    is_package = any(other.startswith(f"{module}.") for other in graph)
    return not is_package or bool(graph[module])


def _label(module: str) -> str:
    if module in ("rmqstore_spark", "native_io"):
        return "__init__"
    return module.removeprefix("native_io.") if module.endswith(".h") else module.rpartition(".")[2]


def _full_label(module: str) -> str:
    return module if not module.endswith(".h") else "native_io/" + module.removeprefix("native_io.")


def main() -> int:
    """Draw the picture; 1 when an import points up."""
    graph = read(ROOT)
    picture = ROOT / PICTURE
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(draw(graph))
    wrong = upward(graph)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
