"""The options of a copy that are none of a read: where groups go on, and how it is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.query.options import COPY_OPTIONS, understand

_OWN = {name.lower() for name in COPY_OPTIONS}


@dataclass(frozen=True)
class CopyOptions:
    """Parsed options of a copy.

    Attributes:
        has_index: whether the copy gets index files.
        starts: by consumer group, where it goes on, other than in the sources.
    """

    has_index: bool = True
    starts: Mapping[str, Start] = field(default_factory=dict)


def split(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Options that select and read messages, and those of the copy itself, by their names in any case."""
    own = {name: value for name, value in given.items() if name.lower() in _OWN}
    return {name: value for name, value in given.items() if name not in own}, own


def parse_copy_options(given: Mapping[str, str]) -> CopyOptions:
    """Parse the options of the copy itself.

    Raises:
        OptionError: a wrong value.
    """
    values, _ = understand(given, COPY_OPTIONS)
    return CopyOptions(values["messageIndexEnable"], values["groupOffset"] or {})
