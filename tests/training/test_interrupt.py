"""Ctrl-C waits for a step to be complete, once."""

from __future__ import annotations

import signal
import threading

import pytest

from headstart.training.interrupt import deferred_interrupt


def test_the_first_is_noted_and_the_second_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as pressed:
        assert not pressed
        signal.raise_signal(signal.SIGINT)
        assert len(pressed) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_it_is_not_enabled_ctrl_c_is_python_s_own() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_interrupt(enabled=False):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_leave_signals_alone() -> None:
    seen = []

    def work() -> None:
        with deferred_interrupt() as pressed:
            seen.append(list(pressed))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[]]
    assert signal.getsignal(signal.SIGINT) is before
