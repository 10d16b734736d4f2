"""How Sphinx builds the site: Markdown pages, API from docstrings, nothing from any other host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sphinx.ext.napoleon import Config, GoogleDocstring

import workerdiag

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "workerdiag"
author = "The workerdiag developers"
copyright = author  # noqa: A001  Sphinx's name
version = release = workerdiag.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_generated", "samples"]

# ----------------------------------------------------------------------------------- Markdown

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# --------------------------------------------------------------------------------------- API

default_role = "literal"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures of a type checker fill lines; the text says what is meant
autodoc_preserve_defaults = True
autoclass_content = "class"

# -------------------------------------------------------------------------------------- theme

html_theme = "pydata_sphinx_theme"
html_title = "workerdiag"
html_static_path = ["_static"]
html_css_files = ["workerdiag.css"]
html_extra_path = ["_generated"]
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "faq": [], "tutorial": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ------------------------------------------------------------------ links out of this folder

#: What has a page of its own here, by its path in the repository.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "knowledge/README.md": "rule-format.md",
    "docs/causes/README.md": "causes/index.md",
}
_LINK = re.compile(r"\]\((?P<path>[\w./-]+)(?P<anchor>#[\w-]+)?\)")
_PAGE_LIST = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)
ROOT = Path(__file__).parents[1]


def site_links(text: str, page: str) -> str:
    """The Markdown of a page, with links that lead out of ``docs`` turned to pages of the site, or to downloads.

    Args:
        text: The Markdown.
        page: Its path in the repository, e.g. ``docs/api.md``.
    """
    here = PurePosixPath(page).parent

    def turned(found: re.Match[str]) -> str:
        path = (ROOT / here / found["path"]).resolve()
        if not path.is_relative_to(ROOT) or not path.is_file():
            return found[0]
        file = path.relative_to(ROOT).as_posix()
        if file in PAGES:
            return f"](/{PAGES[file]}{found['anchor'] or ''})"
        if file.startswith("docs/"):
            return f"](/{file.removeprefix('docs/')}{found['anchor'] or ''})"
        return f"](</../{file}>)"

    return _LINK.sub(turned, text)


def _read_source(_app: Sphinx, docname: str, content: list[str]) -> None:
    content[0] = site_links(content[0], f"docs/{docname}.md").replace("<other pages>", _other_pages())


def _other_pages() -> str:
    """The pages that no list of pages names, so that a new one is found at once."""
    named = {name for page in Path(__file__).parent.glob("*.md") for name in _listed(page)}
    return "\n".join(sorted({page.stem for page in Path(__file__).parent.glob("*.md")} - named - {"index"}))


def _listed(page: Path) -> Iterator[str]:
    for block in _PAGE_LIST.findall(page.read_text(encoding="utf-8")):
        yield from re.findall(r"[\w/-]+(?=>?$)", block, re.MULTILINE)


def _turn_included_links(app: Sphinx, relative_path: Path, _parent: str, content: list[str]) -> None:
    path = (Path(app.srcdir) / relative_path).resolve().relative_to(ROOT).as_posix()
    content[0] = site_links(content[0], path)


# --------------------------------------------------------------------------------- docstrings


def _read_docstring(_app: object, what: str, *others: object) -> None:
    """Turn ``Args:``, ``Returns:`` and ``Raises:`` to lists.

    Comments of fields stay as they are: they are prose, with colons of their own.
    """
    *_, lines = others
    assert isinstance(lines, list)
    if what in ("function", "method", "class", "property"):
        lines[:] = GoogleDocstring(lines, Config(napoleon_use_rtype=False), what=what).lines()


def setup(app: Sphinx) -> None:
    """Turn links as pages are read, and sections of docstrings."""
    app.connect("autodoc-process-docstring", _read_docstring)
    app.connect("source-read", _read_source)
    app.connect("include-read", _turn_included_links)
