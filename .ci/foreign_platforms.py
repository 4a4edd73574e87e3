#!/usr/bin/env python3
"""Can the wheel be installed elsewhere?  `.ci/foreign_platforms.py WHEEL FOLDER [PYTHON ...]`.

`pip download --platform` fetches the wheel with all that it requires, as wheels, for macOS, Windows
and Linux on aarch64, for each version of Python that is named.  pip reads the markers of
requirements on the machine where it runs, so they are read here for the other platform.
"""

import pathlib
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
# name -> (tags of wheels, what the markers of requirements see there)
PLATFORMS = {
    "macOS arm64": (("macosx_14_0_arm64",), ("darwin", "Darwin", "posix", "arm64")),
    "macOS x86-64": (("macosx_14_0_x86_64",), ("darwin", "Darwin", "posix", "x86_64")),
    "Windows": (("win_amd64",), ("win32", "Windows", "nt", "AMD64")),
    "Linux aarch64": (
        tuple(f"{libc}_aarch64" for libc in GLIBC),
        ("linux", "Linux", "posix", "aarch64"),
    ),
}
MARKERS = ("sys_platform", "platform_system", "os_name", "platform_machine")


def metadata(wheel):
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", n))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8"))


def required(wheel, environment):
    """Yield the requirements of a wheel, without extras, that hold in an environment."""
    for line in metadata(wheel).get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            yield requirement


def download(requirements, tags, python, folder):
    """Let pip fetch requirements as wheels for a platform and a version of Python."""
    options = [part for tag in tags for part in ("--platform", tag)]
    return subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", *options,
         "--python-version", python, "--dest", str(folder), *map(str, requirements)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def problem(wheel, name, python, folder):
    """Return why the wheel cannot be installed there, or None."""
    tags, values = PLATFORMS[name]
    environment = dict(zip(MARKERS, values, strict=True)) | {
        "python_version": python, "python_full_version": f"{python}.0", "extra": "",
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {canonicalize_name(r.name): r for r in required(wheel, environment)}
    while wanted:
        done = download(wanted.values(), tags, python, folder)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        there = {canonicalize_name(path.name.split("-")[0]) for path in folder.glob("*.whl")}
        needed = [r for path in folder.glob("*.whl") for r in required(path, environment)]
        wanted = {canonicalize_name(r.name): r for r in needed}
        wanted = {key: r for key, r in wanted.items() if key not in there}
    return None


def main(wheel, folder, *pythons):
    """Print a line for each platform and Python; the exit code is 1 where one cannot be served."""
    failed = False
    for name in PLATFORMS:
        for python in pythons or ("3.12",):
            place = pathlib.Path(folder, f"{name}-{python}".replace(" ", "-"))
            found = problem(wheel, name, python, place)
            wheels = len(list(place.glob("*.whl")))
            print(f"{name}, Python {python}: {found or f'{wheels} wheels'}", flush=True)
            failed |= found is not None
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
