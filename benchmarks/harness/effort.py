"""How much is measured, and beside what."""

from __future__ import annotations

from typing import NamedTuple

QUICK = 10  # a quick run takes one sample in so many
FEWEST = 3


class Effort(NamedTuple):
    """A whole run, or a quick one that only shows that everything works."""

    quick: bool = False
    peer: str = ""  # the Python that has vLLM; "": there is none

    def samples(self, wanted: int) -> int:
        """How many samples to take where a whole run takes `wanted`."""
        return max(FEWEST, wanted // QUICK) if self.quick else wanted
