"""The checks of the built site notice what they are there for."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("check_site", ROOT / "docs" / "check_site.py")
check_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_site)


def site(folder, body):
    (folder / "other.html").write_text('<h1 id="here">Other</h1>')
    (folder / "index.html").write_text(f"<main>{body}</main>")
    return check_site.problems(folder)


@pytest.mark.parametrize(
    "body, found",
    [
        ('<a href="other.html#here">good</a>', []),
        ('<a href="gone.html">bad</a>', ["index.html: gone.html leads nowhere"]),
        ('<a href="other.html#no">bad</a>', ["index.html: other.html#no: no such anchor"]),
        ('<a href="#no">bad</a>', ["index.html: #no: no such anchor"]),
        ('<a href="http://a.org">bad</a>', ["index.html: http://a.org is no https link"]),
        ('<img src="gone.png" alt="a">', ["index.html: gone.png leads nowhere"]),
        ('<img src="other.html">', ["index.html: a picture without a text: other.html"]),
    ],
)
def test_links_and_pictures(tmp_path, body, found):
    assert site(tmp_path, body)[0] == found


def test_links_to_other_sites_are_counted(tmp_path):
    _, outside, pages = site(tmp_path, '<a href="https://a.org/b">a</a>')
    assert (outside, pages) == ({"https://a.org/b"}, 2)


def test_long_pages_need_a_picture(tmp_path):
    (tmp_path / "long.md").write_text("word " * 1501)
    (tmp_path / "short.md").write_text("word " * 1500)
    (tmp_path / "drawn.md").write_text("![a](b.svg)\n" + "word " * 1501)
    assert check_site.without_picture(tmp_path) == ["long.md: 1,501 words and no picture"]
