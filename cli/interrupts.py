"""Turn SIGINT and SIGTERM into exceptions that unwind the command and are not lost.

The exception of a signal handler gets lost in three places.  In a finalizer, or in a function that
C calls, Python prints and forgets it.  While a C extension is imported, it is printed and replaced
by an ImportError.  In the compiler of kernels, it becomes an error of another type.
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

_LATER = 0.002  # seconds until a lost signal is sent again


def end_silently_on_sigint() -> None:
    """Let SIGINT end the process without a traceback, before and after the command runs."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def exit_despite_threads(code: int) -> None:
    """End an interrupted process at once if another thread runs, for which Python would wait."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(not thread.daemon for thread in others):
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)


class Terminated(BaseException):
    """The process received SIGTERM."""


class Interrupts:
    """Handles the signals of one command; `seen` is the exception type of the last signal."""

    def __init__(self) -> None:
        self.seen: type[BaseException] | None = None
        self._is_sending = False
        self._is_over = False

    def end(self) -> None:
        """Stop raising exceptions: the command has ended, and its exit code is being determined."""
        self._is_over = True

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """In this block, raise `KeyboardInterrupt` for SIGINT and `Terminated` for SIGTERM.

        The old handlers are restored afterwards.  If SIGINT is ignored, as in a background job of a
        shell, it stays ignored.  Outside the main thread, nothing changes.
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
            if frame.f_code in _HOOKS:  # an exception raised here would be lost too
                self._send_later(number)
                return
            frame = frame.f_back
        internals = sys.modules.get("fstgrad.core.numba_internals")
        if internals is None or not internals.COMPILATION.hold(self.seen):
            raise self.seen

    def _raise_again(self, lost: Any) -> None:
        """Send the signal again if its exception was lost; the hook for unraisable exceptions."""
        if not self._is_sent_again(lost.exc_type):
            sys.__unraisablehook__(lost)

    def _raise_printed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Send the signal again if C printed its exception, as NumPy's import_array does."""
        if not self._is_sent_again(kind):
            sys.__excepthook__(kind, error, trace)

    def _is_sent_again(self, kind: type[BaseException]) -> bool:
        """Send the signal of an exception again; return False if no signal raised it."""
        if issubclass(kind, Terminated):
            self._send_later(signal.SIGTERM)
        elif issubclass(kind, KeyboardInterrupt):
            self._send_later(signal.SIGINT)
        else:
            return False
        return True

    def _send_later(self, number: int) -> None:
        """Send a signal soon, and only once: a second one could outlive the handlers."""
        if self._is_sending:
            return
        self._is_sending = True

        def send() -> None:
            time.sleep(_LATER)
            self._is_sending = False
            if not hasattr(signal, "pthread_kill"):
                _thread.interrupt_main(signal.Signals(number))
            elif callable(signal.getsignal(number)):  # otherwise the handlers are restored
                signal.pthread_kill(threading.main_thread().ident or 0, number)  # ends a wait too

        _thread.start_new_thread(send, ())


_HOOKS = (Interrupts._raise_again.__code__, Interrupts._raise_printed.__code__)
