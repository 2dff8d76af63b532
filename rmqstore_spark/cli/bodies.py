"""How `--body` has bodies: as text, in hexadecimal, in base64, or as the JSON that they are."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]

_BODY = "body"
_TEXTS: dict[str, Callable[[bytes], str]] = {
    "text": lambda body: body.decode(errors="backslashreplace"),
    "hex": bytes.hex,
    "base64": lambda body: base64.b64encode(body).decode(),
}
FORMS = ["json", *_TEXTS]


def with_bodies(schema: pa.Schema, batches: Batches, form: str) -> tuple[pa.Schema, Batches]:
    """The same rows, with bodies as text. For "json" nothing changes here: formats.write() parses them.

    Args:
        form: one of FORMS.
    """
    if form not in _TEXTS or _BODY not in schema.names:
        return schema, batches
    text, at = _TEXTS[form], schema.get_field_index(_BODY)
    changed = schema.set(at, pa.field(_BODY, pa.string()))

    def shown(batch: pa.RecordBatch) -> pa.RecordBatch:
        bodies = pa.array([None if body is None else text(body) for body in batch.column(at).to_pylist()], pa.string())
        return batch.set_column(at, changed.field(at), bodies)

    return changed, map(shown, batches)


def json_body(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose body, if it is JSON, is the value that it stands for. Numbers that Python would change stay text."""
    body = row.get(_BODY)
    if not isinstance(body, bytes):
        return row
    try:
        text = body.decode()
        value = json.loads(text, parse_float=_exact, parse_constant=_refused, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return row
    return {**row, _BODY: value}


def _exact(text: str) -> float:
    if repr(float(text)) != text:
        raise ValueError
    return float(text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError  # a name comes twice
    return dict(pairs)


def _refused(text: str) -> None:
    raise ValueError(text)
