"""Check the rendered site as it lies on the disk: links, anchors, images, what it
loads, and that no cell failed.

    python tools/check_site.py [FOLDER]     default: _build/html; exits 1 and lists what
    is wrong

- every internal link leads to a file of the site, and its anchor to an element of that
  page;
- every image has a text for those who cannot see it;
- no script, style sheet, font, image or frame comes from another host;
- no cell shows an error.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
LOADS |= {"embed": "src", "object": "data", "image": "href", "use": "href"}
LINKED = {
    "stylesheet",
    "icon",
    "shortcut icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
}
CSS_LOAD = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")
CSS_COMMENT = re.compile(r"/\*.*?\*/", re.S)


class Page(HTMLParser):
    """What the check needs to know of one page."""

    def __init__(self, html: str):
        """Read the page."""
        super().__init__(convert_charrefs=True)
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.styles: list[str] = []
        self.images_without_alt: list[str] = []
        self.cell_errors = 0
        self._in_style = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        self._in_style = tag == "style"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel", "").lower() in LINKED:
            self.loads.append(given.get("href", ""))
        if tag in LOADS:
            self.loads += [
                given[name]
                for name in (LOADS[tag], f"xlink:{LOADS[tag]}")
                if given.get(name)
            ]
        self.loads += [
            part.split()[0]
            for part in given.get("srcset", "").split(",")
            if part.strip()
        ]
        if "style" in given:
            self.styles.append(given["style"])
        if tag == "img" and not given.get("alt", "").strip():
            self.images_without_alt.append(given.get("src", "(no source)"))
        classes = set(given.get("class", "").split())
        if {"output", "traceback"} <= classes or {"output", "error"} <= classes:
            self.cell_errors += 1

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        """Leave a style element."""
        self._in_style = False

    def handle_data(self, data: str) -> None:
        """Keep the text of style elements."""
        if self._in_style:
            self.styles.append(data)


def is_elsewhere(address: str) -> bool:
    """Does this address name another host?"""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) and parts.scheme != "data"


def css_loads(text: str) -> list[str]:
    """What a style sheet loads."""
    return [
        address
        for address in CSS_LOAD.findall(CSS_COMMENT.sub("", text))
        if not address.startswith("#")
    ]


def target_of(link: str, page: Path, site: Path) -> tuple[Path, str] | None:
    """The file and the anchor that an internal link means; None for a link that leaves
    the site."""
    parts = urlsplit(link.strip())
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    file = (
        page
        if not path
        else site / path.lstrip("/")
        if path.startswith("/")
        else page.parent / path
    )
    file = file.resolve()
    return (file / "index.html" if file.is_dir() else file), unquote(parts.fragment)


def check(site: Path) -> tuple[list[str], dict[str, int]]:
    """Everything that is wrong with the site, and how much was looked at."""
    site = site.resolve()
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    pages = {
        path: page
        for path, page in pages.items()
        if "_static" not in path.relative_to(site).parts
    }
    sheets = {
        path: path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(site.rglob("*.css"))
    }
    faults: list[str] = []
    counts = {"pages": len(pages), "links": 0, "images": 0, "loads": 0}

    def fault(path: Path, what: str) -> None:
        faults.append(f"{path.relative_to(site)}: {what}")

    def check_load(path: Path, address: str) -> None:
        counts["loads"] += 1
        if is_elsewhere(address):
            fault(path, f"loads from another host: {address}")
        elif not urlsplit(address).scheme:
            found = target_of(address, path, site)
            if found and not found[0].is_file():
                fault(path, f"loads a file that is not there: {address}")

    for path, page in pages.items():
        for link in page.links:
            found = target_of(link, path, site)
            if found is None:
                continue
            counts["links"] += 1
            file, anchor = found
            if not file.is_file():
                fault(path, f"broken link: {link}")
            elif anchor and file in pages and anchor not in pages[file].ids:
                fault(path, f"broken anchor: {link}")
        for address in page.loads + [
            found for style in page.styles for found in css_loads(style)
        ]:
            check_load(path, address)
        for source in page.images_without_alt:
            fault(path, f"image without alt text: {source[:100]}")
        if page.cell_errors:
            fault(path, f"{page.cell_errors} cell(s) show an error")
        counts["images"] += sum(
            1 for _ in re.finditer(r"<img\b", path.read_text(encoding="utf-8"))
        )
    for path, text in sheets.items():
        for address in css_loads(text):
            check_load(path, address)
    if not pages:
        faults.append(f"{site}: no page found; build the book first")
    return faults, counts


def main(arguments: list[str]) -> int:
    """Check a site and print what was found."""
    faults, counts = check(Path(arguments[0] if arguments else "_build/html"))
    for line in faults:
        print(line, file=sys.stderr)
    print(
        "Checked "
        + ", ".join(f"{number} {name}" for name, number in counts.items())
        + f": {len(faults)} faults."
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
