"""A program `fstgrad` that starts at once: a process that has imported all forks for each call.

The documents call hundreds of commands, which spend most of their time on imports.  With
FSTGRAD_FRESH=1, as at night, each command is a fresh interpreter, as for users.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

from tests.helpers.sources import ROOT

# passes its streams, arguments, folder and environment on, and ends with the code that comes back
CLIENT = """#!{python} -ISs
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(call)
    sys.exit(int(server.recv(8) or 70))
"""
FRESH = "#!{python}\nfrom fstgrad.cli.main import main\nmain()\n"


@contextlib.contextmanager
def fast_program(folder: pathlib.Path):
    """Write the program into a folder, and run what it calls until the block ends."""
    program, place = folder / "fstgrad", str(folder / "socket")
    if os.environ.get("FSTGRAD_FRESH") or not hasattr(os, "fork"):
        program.write_text(FRESH.format(python=sys.executable))
        program.chmod(0o755)
        yield
        return
    program.write_text(CLIENT.format(python=sys.executable, place=place))
    program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.program", place], cwd=ROOT, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            server.terminate()


def answer(call: socket.socket) -> None:
    """Run one command in this process, which ends with it."""
    size, streams, _, _ = socket.recv_fds(call, 4, 3)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += call.recv(1 << 16)
    sys.argv, folder, environment = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    code = 70
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        call.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    import numba  # noqa: F401
    import scipy.optimize
    import scipy.sparse  # noqa: F401

    import conftest  # noqa: F401  (binds cli/ and grammars/)
    import fstgrad

    for name in fstgrad.__all__:
        getattr(fstgrad, name)
    with contextlib.suppress(ImportError):
        import sklearn.linear_model  # noqa: F401
    from fstgrad.cli.main import main

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen()
        os.write(1, b"ready\n")
        while True:
            call, _ = server.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                server.close()
                answer(call)
            call.close()
