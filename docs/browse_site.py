"""Open the built site in headless Chromium: `python docs/browse_site.py build/docs/html [SHOTS]`.

Pages load without an error on the console; the search finds softmax_margin; formulas and pictures
are drawn; light and dark, wide and as narrow as a phone; no picture stays white on a dark page.
Screenshots of a page of each kind are written into a second folder where one is given, or else
thrown away.  Without Chromium nothing is tested, and that is said.
"""

import functools
import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from matplotlib.image import imread

PAGES = (
    "index.html", "install.html", "start.html", "which.html", "tutorials/minimum-risk.html",
    "tutorials/parsing.html", "tutorials/words.html", "gallery/index.html",
    "gallery/dependency_parser.html", "guide/losses.html", "guide/trees.html", "guide/mrf.html",
    "api/index.html", "api/costs.html", "api/generated/fstgrad.StringDistribution.html",
    "cli/tasks/speech.html", "cli/reference.html",
    "performance/speed.html", "internals/notation.html", "faq.html", "citing.html",
)  # fmt: skip
FORMULAS = ("guide/losses.html", "guide/trees.html", "guide/mrf.html", "tutorials/denoising.html")
DARK = "--blink-settings=preferredColorScheme=0"
PHOTOS = ("guide/mrf.html",)  # show photographs or pixels, which are as bright in dark mode
BRIGHT = 0.09  # largest share of nearly white pixels on a dark page; text takes up to 0.04
WIDE, PHONE = "--window-size=1300,1500", "--window-size=500,1000"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder and says nothing."""

    def log_message(self, *_):
        pass


def chromium():
    """Return the program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def browse(program, url, *options):
    """Return the page after its scripts have run, and the errors on the console."""
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", "--virtual-time-budget=10000", *options, url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, [line for line in said if re.search("error|Error|Failed", line)]


def bright(shot):
    """Return the share of nearly white pixels of a screenshot."""
    return float((imread(shot)[..., :3].mean(axis=2) > 0.8).mean())


def problems(program, address, shots):
    """Return what is wrong, a line each."""
    found = []
    for page in PAGES:
        for look in (WIDE,), (PHONE, DARK):
            dom, errors = browse(program, f"{address}/{page}", "--dump-dom", *look)
            found += [f"{page}: {error}" for error in errors]
            if "</main>" not in dom:
                found.append(f"{page}: no page")
            kind = "phone-dark" if DARK in look else "wide"
            shot = shots / f"{page.replace('/', '_').removesuffix('.html')}-{kind}.png"
            browse(program, f"{address}/{page}", f"--screenshot={shot}", *look)
            if DARK in look and page not in PHOTOS and bright(shot) > BRIGHT:
                found.append(f"{page}: {bright(shot):.0%} of the page are white in dark mode")
    for page in FORMULAS:
        dom, _ = browse(program, f"{address}/{page}", "--dump-dom", WIDE)
        if "<mjx-container" not in dom:
            found.append(f"{page}: no formula is drawn")
    dom, _ = browse(program, f"{address}/search.html?q=softmax_margin", "--dump-dom", WIDE)
    if "fstgrad.softmax_margin.html" not in dom:
        found.append("the search does not find softmax_margin")
    return found


def main(folder, shots=None):
    """Print what is wrong; the exit code is 1 where anything is."""
    program = chromium()
    if program is None:
        print("no Chromium: the site was not opened in a browser (apt install chromium)")
        return
    handler = functools.partial(Quiet, directory=folder)
    with (
        tempfile.TemporaryDirectory() as unseen,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
    ):
        target = pathlib.Path(shots or unseen)
        target.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = problems(program, f"http://127.0.0.1:{server.server_port}", target)
        server.shutdown()
    print("\n".join(found) or f"{len(PAGES)} pages opened, wide and narrow, light and dark")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
