"""Numbers and texts, one after the other, as RocksDB writes them into records."""

from native_io import NotSoundError


class Fields:
    """The fields of a record that are still to be read.

    Args:
        data: the record.
        position: where the first field begins.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def __bool__(self) -> bool:
        return self.position < len(self.data)

    def varint(self) -> int:
        """A number of at most 64 bits, seven of them in a byte, the low ones first.

        Raises:
            NotSoundError: the record ends too early, or the number is larger.
        """
        number = 0
        for shift in range(0, 70, 7):
            if self.position >= len(self.data):
                break
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >> 64:
                    break
                return number
        raise NotSoundError("a number", self.position)

    def text(self) -> bytes:
        """A text with its length before it.

        Raises:
            NotSoundError: the record ends before it.
        """
        return self.take(self.varint())

    def take(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            NotSoundError: the record ends before.
        """
        if size > len(self.data) - self.position:
            raise NotSoundError(f"{size} bytes more", self.position)
        self.position += size
        return self.data[self.position - size : self.position]
