"""Points in time as people write them: a number, ISO-8601, a time ago, a day."""

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction

from rmqstore_spark.store.format.clock import milliseconds_now

_MOST = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"-?[0-9]+")
_ISO_8601 = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,](?P<fraction>[0-9]+))?)?)"
    r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
    r"(?: (?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?"
)
_AGO = re.compile(r"-(?P<number>[0-9]{1,9})(?P<unit>[smhdw])")
_DAY = re.compile(r"(?P<day>today|yesterday)(?: (?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LOCAL = "local"
_EXPECTED = (
    "milliseconds of the epoch, or ISO-8601 such as 2024-05-06, 2024-05-06T07:08:09.123, with +08:00, Asia/Shanghai or "
    "local after it, or -1h (also s, m, d, w), now, today, yesterday"
)


@dataclass(frozen=True)
class Instant:
    """A point in time: exact, in milliseconds since 1970; and as the user wrote it."""

    milliseconds: Fraction
    text: str


def parse_instant(text: str) -> Instant:
    """`startingTimestamp`, `endingTimestamp` and other times. UTC where no zone is given.

    * milliseconds since 1970
    * ISO-8601: a date, or a date and a time; with an offset from UTC, or after a space the name of a time zone, or
      `local` for that of this machine
    * `-90m`: so long before now, in seconds, minutes, hours, days or weeks; `now`
    * `today`, `yesterday`: midnight, in UTC or in the zone that is named after a space, as above

    What depends on the clock is found out once, where the option is read: in Spark that is the driver.

    Raises:
        ValueError: the text is nothing of that; it says what is expected.
    """
    trimmed = text.strip()
    if _MILLISECONDS.fullmatch(trimmed):
        if len(trimmed) > len(str(-_MOST)) or abs(int(trimmed)) > _MOST:
            raise ValueError(_EXPECTED)
        return Instant(Fraction(int(trimmed)), text)
    if trimmed.lower() == "now":
        return Instant(Fraction(milliseconds_now()), text)
    if ago := _AGO.fullmatch(trimmed):
        return Instant(Fraction(milliseconds_now() - int(ago["number"]) * _SECONDS[ago["unit"]] * 1000), text)
    if day := _DAY.fullmatch(trimmed):
        now = datetime.fromtimestamp(milliseconds_now() / 1000, _zone(day["zone"]))
        date = now.date() - timedelta(days=day["day"].lower() == "yesterday")
        midnight = _in_zone(datetime(date.year, date.month, date.day), day["zone"])
        return Instant(Fraction((midnight - _EPOCH) // timedelta(milliseconds=1)), text)
    match = _ISO_8601.fullmatch(trimmed)
    if not match or (match["offset"] and match["zone"]):
        raise ValueError(_EXPECTED)
    return Instant(_moment(match), text)


def _moment(match: re.Match[str]) -> Fraction:
    time, fraction = match["time"] or "00:00", match["fraction"] or ""
    seconds = time.removesuffix(fraction).rstrip(".,")  # datetime would cut the fraction after six digits
    try:
        moment = datetime.fromisoformat(f"{match['date']}T{seconds}{match['offset'] or ''}")
        if moment.tzinfo is None:
            moment = _in_zone(moment, match["zone"])
        return Fraction(f"0.{fraction or 0}") * 1000 + (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as why:
        raise ValueError(f"{_EXPECTED} ({why})") from None


def _in_zone(naive: datetime, name: str | None) -> datetime:
    zone = _zone(name)
    return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)


def _zone(name: str | None) -> tzinfo | None:
    """UTC if there is no name; None for that of this machine, which Python knows without a name."""
    if name is None:
        return UTC
    if name.lower() == _LOCAL:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"{_EXPECTED} (there is no time zone {name!r} here)") from None
