"""The Python API as Markdown, made from signatures and docstrings (docs/api.md)."""

import inspect
import re
import textwrap
from collections.abc import Callable

_SECTION = re.compile(r"(Args|Returns|Raises|Attributes):$")
_ENTRY = re.compile(r"([\w*]+): (.*)", re.DOTALL)
_CODE = re.compile(r"(`[^`]*`)")
_PAGE = re.compile(r"docs/([\w-]+)\.md")


def plain(text: str) -> str:
    """Text that says nothing to Markdown outside of its code."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*|_])", r"\\\1", text).replace("<", "&lt;")


def _text(text: str) -> str:
    """The text of a docstring; pages that it names are linked."""
    return _PAGE.sub(r"[\1](\1.md)", plain(text))


def callable_part(name: str, what: Callable[..., object]) -> str:
    """The part of a page about a function or a method: a heading, how it is called, and what its docstring says."""
    heading = name.removeprefix("rmqstore_spark.")
    return "\n\n".join([f"### {heading}", f"`{name}({_parameters(what)})`", *text_of(what)])


def text_of(what: object) -> list[str]:
    """The paragraphs, examples and lists of a docstring."""
    assert what.__doc__ is not None, what
    blocks = re.split(r"\n\n+", inspect.cleandoc(what.__doc__))
    return [_block(block) for block in blocks]


def _block(block: str) -> str:
    first, *others = block.split("\n")
    if _SECTION.match(first):
        body = textwrap.dedent("\n".join(others))
        return f"**{first}**\n\n" + _entries(body)
    if first.startswith(">>> "):
        code = "\n".join(line[4:] for line in block.split("\n"))
        return f"```{_kind(code)}\n{code}\n```"
    return _text(" ".join(block.split("\n")))


def _entries(body: str) -> str:
    """A list of what a section names; a section that names nothing is a paragraph."""
    entries = re.split(r"\n(?=\S)", body)
    found = [_ENTRY.match(" ".join(entry.split())) for entry in entries]
    if None in found:
        return _text(" ".join(body.split()))
    return "\n".join(f"* `{entry[1]}`: {_text(entry[2])}" for entry in found if entry is not None)


def _kind(code: str) -> str:
    """What the tests of the pages (tests/support/pages.py) need to run an example."""
    spark = " spark" if re.search(r"\bspark\b", code) else ""
    bucket = " needs-s3" if "s3a://" in code else ""
    return f"python{spark}{bucket}"


def _parameters(what: Callable[..., object]) -> str:
    """The parameters with their defaults, without types: the texts below them say what each takes."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in inspect.signature(what).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))[1:-1]
