#!/usr/bin/env python3
"""Does a release need wheels for another numba?  `.ci/next_build.py FOLDER`.

The folder has the newest wheels of fstgrad, numba and llvmlite.  Prints "ref=v1.2.3" and
"number=2", the tag of the release and its next build number; the number is empty if the kernels in
the wheel serve this numba.
"""

import json
import pathlib
import sys
import zipfile


def next_build(folder):
    """Return the tag of the release in the folder, and its next build number, or an empty one."""
    wheels = {path.name.split("-")[0]: path for path in pathlib.Path(folder).glob("*.whl")}
    _, version, *build, _, _, _ = wheels["fstgrad"].stem.split("-")
    with zipfile.ZipFile(wheels["fstgrad"]) as archive:
        built = json.loads(archive.read("fstgrad/core/compiled/versions.json"))
    newest = {name: wheels[name].stem.split("-")[1] for name in ("numba", "llvmlite")}
    serves = all(built[name] == newest[name] for name in newest)
    return f"v{version}", "" if serves else str(int(build[0]) + 1 if build else 1)


if __name__ == "__main__":
    print("ref={}\nnumber={}".format(*next_build(sys.argv[1])))
