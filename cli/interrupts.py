"""SIGINT and SIGTERM: one exception each, raised where it unwinds and is not lost.

An exception that a handler raises while Python runs a finalizer, or a function that C calls, is
printed and forgotten; inside the compiler of kernels it also ends as an error of another kind.
"""

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LATER = 0.002  # seconds


class Terminated(BaseException):
    """The process was asked to stop."""


class Interrupts:
    """The signals of one call of the command line; `seen` is the exception of the last one."""

    def __init__(self) -> None:
        self.seen: type[BaseException] | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` and `Terminated` for the two signals; then as before.

        A SIGINT that is ignored, as in the background of a shell, stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        hook = sys.unraisablehook
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, self._handle)}
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
        sys.unraisablehook = self._raise_again
        try:
            yield
        finally:
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.seen = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        compiler = sys.modules.get("fstgrad.compiler")
        if compiler is None or not compiler.COMPILATION.hold(self.seen):
            raise self.seen

    def _raise_again(self, lost: Any) -> None:
        """Send a signal again whose exception nobody could receive."""
        if not issubclass(lost.exc_type, KeyboardInterrupt | Terminated):
            sys.__unraisablehook__(lost)
            return
        number = signal.SIGTERM if issubclass(lost.exc_type, Terminated) else signal.SIGINT
        later = threading.Timer(_LATER, _thread.interrupt_main, (number,))  # when the hook is over
        later.daemon = True
        later.start()
