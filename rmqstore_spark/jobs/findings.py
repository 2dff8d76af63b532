"""The findings of a check in sums: of each problem how often it was found and how much of the store it is about, its
first rows, and the files to be mended. A store may have millions of findings; no more of them is kept than is told."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore_spark.errors import counted
from rmqstore_spark.tables.check.lost import UNKNOWN
from rmqstore_spark.tables.check.problems import PROBLEMS, Fix, Problem

Row = Mapping[str, Any]

NOT_LOOKED_AT = "notLookedAt"
_SERIOUS = {"error", "warning"}
_OF_FILES = {Fix.RESTORE, Fix.MOVE, Fix.UNLINK, Fix.OWN, Fix.SALVAGE}  # whose commands name files


@dataclass(eq=False)
class OfProblem:
    """The findings of one problem.

    Attributes:
        name: of the problem, one of PROBLEMS.
        severity: that of the rows.
        rows: the first ones.
        count: how many there are.
        sized: how many of them say how much they are about.
        total: the sum of what these say.
        files: those that they name, once each, where a command that mends the store names files.
        has_unknown: whether some do not know which messages are lost.
    """

    name: str
    severity: str
    rows: list[Row] = field(default_factory=list)
    count: int = 0
    sized: int = 0
    total: int = 0
    files: dict[str, None] = field(default_factory=dict)
    has_unknown: bool = False

    @property
    def problem(self) -> Problem:
        """What is known of the problem."""
        return PROBLEMS[self.name]

    @property
    def amount(self) -> str:
        """How much they are about: "3 messages", "188 bytes in 2 places", "2 findings"."""
        noun = self.problem.counts
        if not noun:
            return counted(self.count, "finding")
        if not self.sized:
            return counted(self.count, "place")  # how much is unknown
        number = f"{self.total:,} {noun if self.total != 1 else noun.removesuffix('s')}"
        return number if self.count == 1 else f"{number} in {self.count:,} places"

    def add(self, row: Row, most: int | None) -> None:
        """Add a row, and keep it if there are not `most` of them yet."""
        self.count += 1
        if row["count"] is not None:
            self.sized += 1
            self.total += row["count"]
        if row["file"] and self.problem.fix in _OF_FILES:
            self.files[row["file"]] = None
        self.has_unknown = self.has_unknown or UNKNOWN in str(row.get("found"))
        if most is None or len(self.rows) < most or self.name == NOT_LOOKED_AT:  # of which all are told
            self.rows.append(row)


class Findings:
    """The findings of a check of one store, by problem, in the order in which problems were found first.

    Args:
        most: the most rows of each problem that are kept; None: all.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._problems: dict[str, OfProblem] = {}

    @classmethod
    def of(cls, rows: Iterable[Row], most: int | None = None) -> "Findings":
        """Those of some rows of the table `check`."""
        found = cls(most)
        for row in rows:
            found.add(row)
        return found

    def add(self, row: Row) -> None:
        """Add a row of the table `check`: columns problem, severity, file, found, count; and what is shown of it."""
        name = row["problem"]
        if name not in self._problems:
            self._problems[name] = OfProblem(name, row["severity"])
        self._problems[name].add(row, self._most)

    def __iter__(self) -> Iterator[OfProblem]:
        return iter(self._problems.values())

    def named(self, name: str) -> OfProblem | None:
        """The findings of a problem; None if there are none."""
        return self._problems.get(name)

    @property
    def serious(self) -> list[OfProblem]:
        """The errors and warnings."""
        return [each for each in self if each.severity in _SERIOUS]

    @property
    def unseen(self) -> list[Row]:
        """What was not looked at: all of these findings."""
        found = self.named(NOT_LOOKED_AT)
        return [] if found is None else found.rows
