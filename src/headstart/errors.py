"""The one error users see, and the sentence for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work that is safe on disk; the message says how to go on."""


class HeadstartError(ValueError):
    """Something the caller can mend; its message says what, where, and how.

    Example:
        >>> issubclass(HeadstartError, ValueError)
        True
    """


def unknown(kind: str, name: object, choices: Iterable[str]) -> HeadstartError:
    """The error for a name that is not among `choices`, with the nearest one that is.

    Example:
        >>> print(unknown("initializer", "orthogonl", ["orthogonal", "xavier"]))
        There is no initializer 'orthogonl'; did you mean 'orthogonal'? Choose from: orthogonal, xavier.
    """
    names = sorted(choices)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return HeadstartError(f"There is no {kind} {name!r}{hint} Choose from: {', '.join(names)}.")
