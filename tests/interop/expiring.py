"""A broker that deletes its oldest segments as expired ones when it is asked to (Expiring.java)."""

from __future__ import annotations

from dataclasses import dataclass

from interop.rocketmq import Broker

EXPIRED = 10  # segments that it deletes at a time


@dataclass
class ExpiringBroker(Broker):
    """Deletes nothing by itself."""

    main: str = "interop.Expiring"

    def segments(self) -> list[int]:
        """Where those that are there begin."""
        return sorted(int(path.name) for path in (self.root / "commitlog").iterdir())

    def next_start(self) -> int:
        """Where the log begins once it has deleted some."""
        return self.segments()[0] + EXPIRED * self.sizes.segment

    def expire(self) -> None:
        """Has it delete some, soon."""
        (self.home / "expire").touch()

    def is_expiring(self) -> bool:
        return (self.home / "expire").exists()
