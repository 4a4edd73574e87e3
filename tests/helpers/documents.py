"""The documents and their blocks."""

import contextlib
import doctest
import io
import re

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path):
    return [(match[1], match[2]) for match in BLOCK.finditer(path.read_text())]


def run_python(code, namespace):
    if ">>> " in code:
        test = doctest.DocTestParser().get_doctest(code, namespace, "block", None, 0)
        report = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        runner.run(test, out=report.write, clear_globs=False)
        namespace.update(test.globs)
        assert not report.getvalue(), report.getvalue()
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<block>", "exec"), namespace)
    return printed.getvalue()
