"""The one error users see, and the sentence for a name that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work that is safe on disk; the message says how to go on."""


class HeadstartError(ValueError):
    """Something the caller can mend; its message says what, where, and how.

    Example:
        >>> issubclass(HeadstartError, ValueError)
        True
    """


def unknown(kind: str, name: object, choices: Iterable[str]) -> HeadstartError:
    """The error for a name that does not exist, with the nearest one that does.

    Args:
        kind: What it should be the name of.
        name: The name.
        choices: The names that exist.

    Returns:
        The error, to be raised.

    Example:
        >>> print(unknown("sampler", "wieghts", ["local", "weights"]))
        There is no sampler 'wieghts'; did you mean 'weights'? Choose from: local, weights.
    """
    names = sorted(choices)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    # A name with a comma or a space would run into its neighbors.
    listed = ", ".join(each if re.fullmatch(r"[\w.-]+", each) else repr(each) for each in names)
    return HeadstartError(f"There is no {kind} {name!r}{hint} Choose from: {listed}.")


def in_error(given: object) -> str:
    """What was given in place of something else, for the end of a sentence.

    Args:
        given: Anything; of a class that was to be called the class is named.

    Example:
        >>> in_error(dict), in_error({})
        ('the class dict', 'a dict')
    """
    if isinstance(given, type):
        return f"the class {given.__name__}"
    return f"a {type(given).__name__}"


def printable(text: str) -> str:
    """One line for a terminal: what would break or color it is spelled out.

    Args:
        text: What to print, a column's name with an escape sequence for instance.

    Example:
        >>> print(printable("a\\nb"))
        a\\nb
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def untrusted(source: object, what: str) -> Iterator[None]:
    """Within this scope the content of a file is put to use: whatever breaks is the file's fault.

    Args:
        source: The file.
        what: What is wrong with it then, as the rest of a sentence that begins with `source`.

    Raises:
        HeadstartError: Something broke.

    Example:
        >>> with untrusted("net.safetensors", "describes none"):
        ...     [][3]
        Traceback (most recent call last):
        ...
        headstart.errors.HeadstartError: net.safetensors describes none: list index out of range.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HeadstartError) and str(source) in str(error):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise HeadstartError(f"{source} {what}: {said}.") from error
