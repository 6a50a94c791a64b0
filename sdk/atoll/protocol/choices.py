"""Names that a document may choose from, as a validator that can be asked for them.

Rule of this file: the names are those of a registry, so that there is no second list of them. A
test reads them off the manifest's fields and asks for each by a job file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final


class OneOf:
    """A validator of text.

    Args:
        what: a name is of, for the words of the refusal.
        names: in the order in which they are shown.
    """

    def __init__(self, what: str, names: Iterable[str]) -> None:
        self.what: Final = what
        self.names: Final = tuple(names)

    def __call__(self, name: str) -> str:
        """The name. Raises ValueError where it is none of them."""
        if name not in self.names:
            shown = ", ".join(each for each in self.names if each)
            raise ValueError(f"there is no {self.what} {name!r}: choose one of {shown}")
        return name
