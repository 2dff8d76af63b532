"""What is told once, though work meets it several times."""

_MOST = 65_536  # texts, whose hashes take 70 bytes each


class Once:
    """Tells which texts are new. So many are known again; of more, each is new whenever it comes: rather told twice
    than not at all, and memory does not grow with damage."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def is_new(self, text: str) -> bool:
        """Has this text not come before, as far as is known?"""
        number = hash(text)
        is_new = number not in self._hashes
        if len(self._hashes) < _MOST:
            self._hashes.add(number)
        return is_new
