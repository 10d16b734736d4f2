"""Fails if a page of the built site has a dead internal link, or loads anything from another host.

python docs/check_site.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes by which a page loads something, whatever the element; links of <a> are clicked by people.
_LOADING = ("src", "srcset", "poster", "data", "action", "href")
_LINKS = ("a", "area")
#: ``<link>`` that no browser fetches.
_NOT_FETCHED = ("canonical", "index", "search", "next", "prev", "author", "license")
_STYLE_ADDRESS = re.compile(r"(?:@import\s+|url\()\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)
        self.loaded += _STYLE_ADDRESS.findall(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element names, links to and loads."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag in _LINKS:
            self.links += [given["href"]] if given.get("href") else []
        elif tag != "link" or given.get("rel") not in _NOT_FETCHED:
            self.loaded += [given[name] for name in _LOADING if given.get(name)]


@cache
def read(path: Path) -> Page:
    """A page of the site."""
    return Page(path.read_text(encoding="utf-8"))


def pages(site: Path) -> list[Path]:
    """The pages of a site; below ``_static`` are parts of the theme."""
    return sorted(each for each in site.rglob("*.html") if "_static" not in each.relative_to(site).parts)


def problems(site: Path) -> Iterator[str]:
    """A line for each dead link, and for each thing from elsewhere."""
    for path in pages(site):
        page = read(path)
        where = path.relative_to(site)
        yield from (f"{where}: loads {each}" for each in page.loaded if _is_elsewhere(each))
        for each in (*page.links, *page.loaded):
            if not _is_elsewhere(each) and (problem := _dead(each, path, site)):
                yield f"{where}: {problem}"
    for path in sorted(site.rglob("*.css")):
        found = _STYLE_ADDRESS.findall(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(site)}: loads {each}" for each in found)


def _is_elsewhere(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def _dead(address: str, page: Path, site: Path) -> str:
    """What is wrong with a link within the site; empty if it leads somewhere."""
    parts = urlsplit(address)
    if parts.scheme:  # data:, mailto:
        return ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site.resolve()) or not target.is_file():
        return f"no such file: {address}"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in read(target).anchors:
        return f"no such anchor: {address}"
    return ""


def main() -> int:
    """Print the problems of a site; 1 if there are any."""
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").is_file():
        print(f"{site} is no built site", file=sys.stderr)
        return 2
    found = list(problems(site))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{site}: {len(pages(site))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
