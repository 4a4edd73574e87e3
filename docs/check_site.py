"""Follow every link of the built site: `python docs/check_site.py build/docs/html`.

Pages, files and anchors inside of the site have to be there, and pictures need a text.  Links to
other sites are counted, and their form is checked; nothing is fetched (`--outside` lists them).  A
page of more than 1,500 words needs a picture.
"""

import pathlib
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

MOST_WORDS = 1_500  # of a page without a picture
PICTURE = re.compile(r"!\[|^```\{(?:image|figure|code-cell)", re.MULTILINE)


class Page(HTMLParser):
    """The links, the anchors and the pictures of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.untold = [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.update(given[key] for key in ("id", "name") if given.get(key))
        if tag in ("a", "link") and given.get("href"):
            self.links.append(given["href"])
        if tag in ("img", "script") and given.get("src"):
            self.links.append(given["src"])
        if tag == "img" and "alt" not in given:
            self.untold.append(given.get("src"))


def problems(root):
    """Return what is wrong, a line each, the links out of the site, and the number of pages."""
    pages = {
        path.resolve(): Page(path)
        for path in sorted(root.rglob("*.html"))
        if "_static" not in path.parts
    }
    found, outside = [], set()
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        found += [f"{name}: a picture without a text: {src}" for src in page.untold]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                outside.add(link)
                if parts.scheme not in ("https", "mailto") or not (parts.netloc or parts.path):
                    found.append(f"{name}: {link} is no https link")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[target].anchors and anchor not in ("", "top"):
                    found.append(f"{name}: {link}: no such anchor")
    return found, outside, len(pages)


def without_picture(docs):
    """Return the pages, a line each, that are long and show nothing."""
    found = []
    for path in sorted(docs.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        words = len(text.split())
        if words > MOST_WORDS and not PICTURE.search(text):
            found.append(f"{path.relative_to(docs)}: {words:,} words and no picture")
    return found


def main(folder, *options):
    """Print what is wrong; the exit code is 1 where anything is."""
    found, outside, pages = problems(pathlib.Path(folder))
    found += without_picture(pathlib.Path(__file__).parent)
    if "--outside" in options:
        print("\n".join(sorted(outside)))
    print("\n".join(found) or f"{pages} pages, no broken link; {len(outside)} links to other sites")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
