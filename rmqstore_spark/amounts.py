"""Amounts as text, for people: sizes on every screen, in plans, warnings and the repr of a Store; lengths of time."""

MIB = 1 << 20  # bytes
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(number: float) -> str:
    """A number of bytes in powers of 1024: `512 bytes`, `2.1 MiB`."""
    for unit in _UNITS[:-1]:
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} {_UNITS[-1]}"


def duration_text(milliseconds: int) -> str:
    """A length of time in its two largest units: `8.5 s`, `3 h 20 min`."""
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, _ = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if days < 2 * 365 else f"{days // 365} years {days % 365} days"
