"""Signals are noticed where it is safe, a second one is noticed too, and the handlers are restored afterwards."""

import os
import signal

import pytest

from ottla.cli.interruption import Interrupted, Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_the_program_checks_for_it(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), number)
        assert (interruption.number, interruption.impatient) == (number, False)
        with pytest.raises(Interrupted):
            interruption.check()
        os.kill(os.getpid(), number)
        assert interruption.impatient
    assert signal.getsignal(number) is before
