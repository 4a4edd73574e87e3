"""SIGINT and SIGTERM: one exception each, raised where it unwinds and is not lost.

An exception that a handler raises while Python runs a finalizer, or a function that C calls, is
printed and forgotten; a module in C that is being loaded prints it and raises an ImportError;
inside the compiler of kernels it also ends as an error of another kind.
"""

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LATER = 0.002  # seconds


def end_silently() -> None:
    """Let SIGINT end the process where nothing unwinds: before the command line, and after it."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def leave_threads(code: int) -> None:
    """End an interrupted process at once if a thread still works, as Python would wait for it."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(not thread.daemon for thread in others):
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)


class Terminated(BaseException):
    """The process was asked to stop."""


class Interrupts:
    """The signals of one call of the command line; `seen` is the exception of the last one."""

    def __init__(self) -> None:
        self.seen: type[BaseException] | None = None
        self._is_sending = False
        self._is_over = False

    def end(self) -> None:
        """Raise nothing more: the command has ended, and its exit code is being found."""
        self._is_over = True

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` and `Terminated` for the two signals; then as before.

        A SIGINT that is ignored, as in the background of a shell, stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        hooks = sys.unraisablehook, sys.excepthook
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, self._handle)}
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
            before[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
        sys.unraisablehook, sys.excepthook = self._raise_again, self._raise_printed
        try:
            yield
        finally:
            sys.unraisablehook, sys.excepthook = hooks
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if self._is_over:
            return
        while frame is not None:
            if frame.f_code in _HOOKS:  # which would lose it, too
                self._send_later(number)
                return
            frame = frame.f_back
        compiler = sys.modules.get("fstgrad.compiler")
        locks = sys.modules.get("numba.core.compiler_lock")
        # a thread that waits while another one compiles holds nothing back
        is_here = locks is not None and locks.global_compiler_lock.is_locked()
        if compiler is None or not is_here or not compiler.COMPILATION.hold(self.seen):
            raise self.seen

    def _raise_again(self, lost: Any) -> None:
        """Send a signal again whose exception nobody could receive."""
        if not self._is_sent_again(lost.exc_type):
            sys.__unraisablehook__(lost)

    def _raise_printed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Send a signal again whose exception C printed, as the import_array of NumPy does."""
        if not self._is_sent_again(kind):
            sys.__excepthook__(kind, error, trace)

    def _is_sent_again(self, kind: type[BaseException]) -> bool:
        """Send the signal of an exception again; return False if it is not one of a signal."""
        if issubclass(kind, Terminated):
            self._send_later(signal.SIGTERM)
        elif issubclass(kind, KeyboardInterrupt):
            self._send_later(signal.SIGINT)
        else:
            return False
        return True

    def _send_later(self, number: int) -> None:
        """Send a signal soon, once: a second one could arrive when the handlers are gone."""
        if self._is_sending:
            return
        self._is_sending = True

        def send() -> None:
            time.sleep(_LATER)
            self._is_sending = False
            _thread.interrupt_main(signal.Signals(number))

        _thread.start_new_thread(send, ())


_HOOKS = (Interrupts._raise_again.__code__, Interrupts._raise_printed.__code__)
