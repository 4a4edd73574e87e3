"""What a release says about itself in several files says the same."""

import configparser
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from fstgrad._version import __version__

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version():
    assert re.search(r"^version: (.*)$", read("CITATION.cff"), re.MULTILINE)[1] == __version__
    assert f'version = "{__version__}"' in read("conda/meta.yaml")


def test_the_recipe_needs_what_the_package_needs():
    recipe = read("conda/meta.yaml").split("  run:\n")[1].split("  run_constrained")[0]
    found = {line.strip("- ").replace(" ", "").replace("-", "_") for line in recipe.splitlines()}
    needed = CONFIG["options"]["install_requires"].split("\n")
    wanted = {line for line in needed if line and ";" not in line}
    python = "python" + CONFIG["options"]["python_requires"]
    assert found - {""} == wanted | {python}


def test_every_python_of_the_classifiers_is_tested():
    listed = re.findall(r"Python :: (3\.\d+)", CONFIG["metadata"]["classifiers"])
    assert listed
    assert re.search(r"python: (\[.*\])", read(".github/workflows/tests.yml"))[1] == str(
        listed
    ).replace("'", '"')
    assert set(listed) <= set(re.search(r"{PYTHONS:-(.*?)}", read(".ci/release-check"))[1].split())


def test_metadata_have_no_placeholders():
    metadata = dict(CONFIG["metadata"])
    assert metadata["author"] == "fstgrad developers"
    assert not any("url" in key for key in metadata)
    assert len(metadata["keywords"].split("\n")) > 5


YAML = [*sorted(ROOT.glob(".github/**/*.yml")), ROOT / ".pre-commit-config.yaml"]


@pytest.mark.parametrize(
    "path",
    [*YAML, ROOT / "CITATION.cff"],
    ids=lambda p: p.name,
)  # fmt: skip
def test_files_of_services_are_yaml(path):
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    for job in found.get("jobs", {}).values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            continue
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)


def test_targets_of_the_workflows_exist():
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    for path in ROOT.glob(".github/workflows/*.yml"):
        for line in re.findall(r"run: make (.*)", path.read_text()):
            assert set(line.split()) <= targets


@pytest.mark.parametrize("numba, number", [("0.68.1", ""), ("0.69.0", "3")])
def test_wheels_are_built_again_for_another_numba(tmp_path, numba, number):
    built = {"numba": "0.68.1", "llvmlite": "0.46.0", "levels": ["x86-64-v2"]}
    name = "fstgrad-0.2.0-2-cp311-cp311-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("fstgrad/core/compiled/versions.json", json.dumps(built))
    for other in (f"numba-{numba}", "llvmlite-0.46.0", "numpy-2.4.0"):
        (tmp_path / f"{other}-cp311-cp311-manylinux2014_x86_64.whl").touch()
    program = [sys.executable, ROOT / ".ci/next_build.py", tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == f"ref=v0.2.0\nnumber={number}\n"


def test_the_sdist_lists_what_is_tracked():
    """Every tracked file is named by MANIFEST.in or belongs to a package."""
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a clone")
    manifest = read("MANIFEST.in")
    grafted = re.findall(r"^graft (\S+)$", manifest, re.MULTILINE)
    included = " ".join(re.findall(r"^include (.*)$", manifest, re.MULTILINE)).split()
    always = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"}
    for name in done.stdout.split():
        top = name.split("/")[0]
        assert top in (*grafted, *included, *always, "fstgrad", ".gitattributes"), name


def test_the_changelog_of_a_version_is_short():
    sections = re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    newest = sections[sections[0].startswith("[Unreleased]")]
    assert newest.startswith(f"[{__version__}]")
    assert len(newest.splitlines()) <= 120
