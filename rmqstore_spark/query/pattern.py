"""Regular expressions on topics, which are named by whoever sends a message: RE2's, whose time is in proportion to the
length of the text. What Python's `re` can do beyond them is what lets some topics keep it busy for ever.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_MOST_KNOWN = 1 << 18  # topics of which a pattern keeps what it says
_LONGEST_KNOWN = 255  # bytes that a file name can have, and so characters of a topic that is asked for often

# What other engines have, by what RE2 stumbles over.
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
# What Java reads otherwise, once escaped characters are gone. Taken as RE2 reads it, it would match no topic.
_MISREAD = {r"\[[^]]*&&": "set intersection", r"\[\[(?!:)": "nested sets"}
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Pattern:
    """A regular expression that matches whole texts. compiled() makes them.

    Each call of RE2 compiles it anew. So many texts are asked about at once, and the answers are kept; a copy in
    another process begins without them.
    """

    text: str
    _known: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[type["Pattern"], tuple[str]]:
        return Pattern, (self.text,)

    def matches(self, text: str) -> bool:
        """Does it match the whole text?"""
        if len(text) > _LONGEST_KNOWN:
            return self._ask([text])[0]
        if text not in self._known:
            self.learn([text])
        return self._known[text]

    def learn(self, texts: Collection[str]) -> None:
        """Match many texts at once, those that matches() will be asked about."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known and len(text) <= _LONGEST_KNOWN]
        if len(self._known) + len(new) > _MOST_KNOWN:
            self._known.clear()
            new = new[:_MOST_KNOWN]
        self._known.update(zip(new, self._ask(new), strict=True))

    def _ask(self, texts: list[str]) -> list[bool]:
        # A directory's name can have bytes that are no UTF-8; a message has U+FFFD in their place.
        sound = [_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text) for text in texts]
        return _search(_whole(self.text), sound)


def compiled(text: str) -> Pattern:
    """A pattern.

    Raises:
        ValueError: it is none of RE2's; the text says why, in one line.
    """
    plain = _ESCAPED.sub("", text)
    for construct, name in _MISREAD.items():
        if re.search(construct, plain):
            raise ValueError(f"RE2 has no {name}")
    try:
        _search(text, [""])  # by itself: what has brackets such as a)(b would break out of the group around it
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
    """What RE2 says, which ends with what it stumbled over; or the name of that, where it is something of others'."""
    why = why.removeprefix("Invalid regular expression: ")
    stumbled = why.rpartition(": ")[2]
    if stumbled == "(?P" and "(?P=" in text:  # it shows no more of it
        stumbled = "(?P="
    for construct, name in _MISSING.items():
        if re.fullmatch(construct, stumbled):
            return f"RE2 has no {name}"
    return "".join(character if character.isprintable() else " " for character in why)
