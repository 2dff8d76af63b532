"""Regular expressions on topics. They are RE2's, whose time is proportional to the length of the text: any sender of a
message may name a topic, and with the further features of Python's `re` some names would keep it busy for ever.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_MOST_KNOWN = 1 << 18  # topics for which a pattern keeps the answer
_LONGEST_KNOWN = 255  # bytes of the longest file name, and so characters of the longest topic that is asked for often

# Features of other engines, by the text that RE2 reports as wrong.
_MISSING = {
    r"\(\?=": "look-ahead",
    r"\(\?!": "negative look-ahead",
    r"\(\?<=": "look-behind",
    r"\(\?<!": "negative look-behind",
    r"\\[1-9kg]|\(\?P=": "back references",
    r"\(\?>": "atomic groups",
    r"(?:[*+?]|\{[0-9,]+\})\+": "possessive quantifiers",
    r"\(\?\(": "conditionals",
}
# Syntax that Java reads otherwise, once escaped characters are gone. As RE2 reads it, it would match no topic.
_MISREAD = {r"\[[^]]*&&": "set intersection", r"\[\[(?!:)": "nested sets"}
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Pattern:
    """A regular expression that matches whole texts. Made by compiled().

    Each call of RE2 compiles the expression anew. So many texts are matched in one call, and the answers are kept; a
    copy in another process begins without the answers.
    """

    text: str
    _known: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[type["Pattern"], tuple[str]]:
        return Pattern, (self.text,)

    def matches(self, text: str) -> bool:
        """Does the pattern match the whole text?"""
        if len(text) > _LONGEST_KNOWN:
            return self._ask([text])[0]
        if text not in self._known:
            self.learn([text])
        return self._known[text]

    def learn(self, texts: Collection[str]) -> None:
        """Match many texts at once: those that matches() will be asked about."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known and len(text) <= _LONGEST_KNOWN]
        if len(self._known) + len(new) > _MOST_KNOWN:
            self._known.clear()
            new = new[:_MOST_KNOWN]
        self._known.update(zip(new, self._ask(new), strict=True))

    def _ask(self, texts: list[str]) -> list[bool]:
        # A directory's name can have bytes that are not UTF-8; a message has U+FFFD in their place.
        sound = [_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text) for text in texts]
        return _search(_whole(self.text), sound)


def compiled(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        ValueError: the text is not an expression of RE2; the error says why, in one line.
    """
    plain = _ESCAPED.sub("", text)
    for construct, name in _MISREAD.items():
        if re.search(construct, plain):
            raise ValueError(f"RE2 has no {name}")
    try:
        _search(text, [""])  # without the group: brackets such as a)(b would break out of it
    except ValueError as why:
        raise ValueError(_reason(text, str(why))) from None
    try:
        _search(_whole(text), [""])
    except ValueError:
        raise ValueError(r"\Q without \E") from None
    return Pattern(text)


def _whole(text: str) -> str:
    return rf"\A(?:{text})\z"


def _search(pattern: str, texts: list[str]) -> list[bool]:
    import pyarrow as pa  # here, because it takes long to load
    import pyarrow.compute as pc

    found: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), pattern).to_pylist()
    return found


def _reason(text: str, why: str) -> str:
    """The reason that RE2 gives, which ends with the wrong part; or the name of another engine's feature."""
    why = why.removeprefix("Invalid regular expression: ")
    stumbled = why.rpartition(": ")[2]
    if stumbled == "(?P" and "(?P=" in text:  # RE2 shows no more of the text
        stumbled = "(?P="
    for construct, name in _MISSING.items():
        if re.fullmatch(construct, stumbled):
            return f"RE2 has no {name}"
    return "".join(character if character.isprintable() else " " for character in why)
