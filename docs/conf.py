"""Sphinx's settings: `make docs` builds the site of docs/ into build/docs/html."""

import pathlib
import shutil
import sys
from importlib import metadata

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "benchmarks")]

project = "fstgrad"
author = "fstgrad developers"
release = version = metadata.version("fstgrad")
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build", "_templates", "gallery/*.ipynb", "gallery/*.json", "gallery/*.md5", "gallery/*.py",
    "gallery/*.zip", "**.ipynb_checkpoints", "jupyter_execute",
]  # fmt: skip
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # the scraper and the sorter of the gallery are functions

# Markdown and the executed tutorials
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # what the first run says of its kernels

# Formulas without the network: MathJax of a Python package, copied into the site
_MATHJAX = next(
    path.locate()
    for path in metadata.files("django-static-mathjax") or ()
    if path.match("es5/tex-svg.js")
)
mathjax_path = "tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "global"}, "options": {"enableMenu": False}}

# The reference of the library
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections tell the types
autodoc_member_order = "bysource"
default_role = "py:obj"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# The gallery
from code_lines import add_lines
from site_parts import (
    example_of_page,
    figures,
    name_file,
    order,
    paper_results,
    plain_bars,
    plain_options,
    plain_text,
)

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(torch_ddp|vowels)\.py$",
    "image_scrapers": (figures,),
    "reset_modules": (name_file,),
    "within_subsection_order": order,
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "download_all_examples": False,
    "copyfile_regex": r".*\.rules",
}

html_theme = "pydata_sphinx_theme"
html_title = "fstgrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "fstgrad"},
    "show_nav_level": 1,
    "navigation_depth": 3,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
WITHOUT_SIDEBAR = (
    "index", "install", "start", "which", "faq", "citing", "changelog", "contributing",
)  # fmt: skip
html_sidebars: dict[str, list[str]] = {page: [] for page in WITHOUT_SIDEBAR}
copyright = "fstgrad developers, Apache-2.0"


def _copy_mathjax(app, _exception=None):
    static = pathlib.Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_MATHJAX, static / "tex-svg.js")


def setup(app):
    """Connect what is done to the texts that Sphinx reads; copy MathJax once pages are written."""
    for part in ("description", "epilog"):
        app.connect(f"sphinx-click-process-{part}", plain_text)
    app.connect("sphinx-click-process-options", plain_options)
    app.connect("autodoc-process-docstring", plain_bars, priority=100)
    app.connect("autodoc-process-docstring", example_of_page, priority=900)
    app.connect("source-read", add_lines)
    app.connect("source-read", paper_results)
    app.connect("build-finished", _copy_mathjax)
