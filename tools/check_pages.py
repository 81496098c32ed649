"""Check every page of the rendered site in a real browser, wide and narrow.

    python tools/check_pages.py [FOLDER] [--only TEXT] [--require] [--shots FOLDER]

FOLDER is `_build/html` unless given. A Chromium or Chrome that is installed already
opens each page twice, 1,280 pixels wide in light colors and 390 pixels wide in dark
ones, with everything unfolded. A page has a fault where

- axe-core finds something critical or serious that bars people from reading it;
- at 1,280 pixels a code cell has to be scrolled sideways;
- the page itself has to be scrolled sideways, or an open chart has no size;
- a script fails, or a file is missing;
- it asks another host for anything.

Exits 1 and lists the faults. Where there is no browser it says so and exits 0, or 2
with `--require`.
"""

import argparse
import functools
import importlib.util
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
PLACES = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]
VIEWS = {
    "1280 light": {"width": 1280, "height": 900, "color_scheme": "light"},
    "390 dark": {"width": 390, "height": 844, "color_scheme": "dark"},
}
SWITCHES = ["--disable-background-networking", "--disable-component-update"]
SWITCHES += ["--disable-sync", "--disable-quic", "--force-color-profile=srgb"]

# Everything unfolded, then what is drawn late: formulas, charts, fonts.
SETTLE = """async () => {
  for (const box of document.querySelectorAll("details")) box.open = true;
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const drawn = () => [...document.querySelectorAll("[id^=altair-viz]")]
    .every((chart) => chart.querySelector("svg.marks, canvas"));
  for (let i = 0; i < 100 && !drawn(); i++) await new Promise((r) => setTimeout(r, 50));
  await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
  await Promise.allSettled(document.getAnimations().map((moving) => moving.finished));
}"""

# Its experimental rules as well; `preload` would fetch the style sheets once more. Of
# each color of code two words are enough: with all of them a chapter takes a quarter of
# a minute.
AXE = """async () => {
  const seen = {};
  const words = [...document.querySelectorAll(".highlight pre span[class]")];
  const again = words.filter((s) => {
    const kind = `${s.className} ${s.children.length} ${getComputedStyle(s).color}`;
    return !s.classList.contains("line") && (seen[kind] = (seen[kind] ?? 0) + 1) > 2;
  });
  for (const span of again) span.replaceWith(...span.childNodes);
  const found = await axe.run(document, {
    resultTypes: ["violations"], preload: false,
    runOnly: [
      "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice",
      "experimental",
    ],
  });
  return found.violations
    .filter(({ impact }) => ["critical", "serious"].includes(impact))
    .map(({ id, impact, nodes }) => ({
      id, impact, count: nodes.length, where: nodes[0].target.flat().join(" "),
      html: nodes[0].html.slice(0, 120),
    }));
}"""

# A cell is too wide when any box from its code up to the cell hides a part of it.
LAYOUT = """() => {
  const wide = (box) => box.scrollWidth > box.clientWidth + 1;
  const cells = [...document.querySelectorAll("div.cell_input")];
  const cut = cells.filter((cell) =>
    wide(cell) || [...cell.querySelectorAll("div, pre")].some(wide));
  const charts = [...document.querySelectorAll("svg.marks, .vega-embed canvas")];
  return {
    cells: cells.length,
    cut: cut.map((cell) => cell.querySelector("pre").textContent.trim().slice(0, 60)),
    flat: charts.map((c) => c.getBoundingClientRect())
      .filter(({ width, height }) => width < 40 || height < 20).length,
    page: document.documentElement.scrollWidth - window.innerWidth,
  };
}"""


def find_browser() -> str | None:
    """The path of a Chromium or Chrome on this machine; `$BOOK_BROWSER` names
    another."""
    named = os.environ.get("BOOK_BROWSER")
    if named:
        return shutil.which(named)
    found = [shutil.which(name) for name in NAMES]
    return next((path for path in [*found, *map(shutil.which, PLACES)] if path), None)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing about it."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which the files of `folder` are served, on this machine
    only."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def pages_of(site: Path) -> list[str]:
    """The site's pages, as paths below its folder."""
    paths = [path.relative_to(site) for path in sorted(site.rglob("*.html"))]
    return [path.as_posix() for path in paths if path.parts[0] != "_static"]


def look_at(page, address: str, home: str, wide: bool) -> tuple[list[str], int]:
    """Open one page: its faults, and how many code cells it has."""
    faults: list[str] = []

    def request(sent) -> None:
        host = urlsplit(sent.url)
        if host.scheme not in ("data", "blob") and not sent.url.startswith(home):
            faults.append(f"asks another host: {sent.url[:100]}")

    def response(got) -> None:
        if got.status >= 400:
            faults.append(f"answer {got.status}: {got.url.removeprefix(home)}")

    def console(message) -> None:
        if message.type == "error" and "Failed to load" not in message.text:
            faults.append(f"console: {message.text[:200]}")

    page.on("request", request)
    page.on("response", response)
    page.on("console", console)
    page.on("pageerror", lambda error: faults.append(f"script: {str(error)[:200]}"))
    page.goto(address, wait_until="load")
    page.evaluate(SETTLE)
    layout = page.evaluate(LAYOUT)
    if wide:
        faults += [f"code cell scrolls sideways: {cell!r}" for cell in layout["cut"]]
    if layout["page"] > 1:
        faults.append(f"the page scrolls sideways, by {layout['page']} pixels")
    if layout["flat"]:
        faults.append(f"{layout['flat']} open chart(s) without a size")
    page.evaluate(axe_source())
    for found in page.evaluate(AXE):
        kind = f"{found['impact']}: {found['id']} ({found['count']})"
        faults.append(f"{kind} at {found['where']}: {found['html']}")
    return faults, layout["cells"]


@functools.cache
def axe_source() -> str:
    """The script of axe-core, out of the package that carries it."""
    package = importlib.util.find_spec("axe_playwright_python").origin
    return Path(package).with_name("axe.min.js").read_text(encoding="utf-8")


def look_at_all(
    home: str, names: list[str], view: str, browser: str, shots: Path | None
) -> tuple[list[str], int]:
    """Open all pages in one view: their faults, and how many code cells they have."""
    from playwright.sync_api import sync_playwright

    look, faults, cells = VIEWS[view], [], 0
    wide = look["width"] >= 1280
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser, args=SWITCHES, chromium_sandbox=not root
        )
        context = chromium.new_context(
            viewport={"width": look["width"], "height": look["height"]},
            color_scheme=look["color_scheme"],
            reduced_motion="reduce",
            is_mobile=not wide,
        )
        for name in names:
            page = context.new_page()
            try:
                found, number = look_at(page, f"{home}/{name}", home, wide)
            except Exception as error:  # a page that cannot be opened is a fault
                found, number = [f"not checked: {error}"], 0
            faults += [f"{name} ({view}): {fault}" for fault in found]
            cells += number
            if shots:
                shots.mkdir(parents=True, exist_ok=True)
                file = f"{name.replace('/', '-')}-{view.replace(' ', '-')}.png"
                page.screenshot(path=shots / file, full_page=True)
            page.close()
        chromium.close()
    return faults, cells


def check(
    site: Path, browser: str, only: str = "", shots: Path | None = None
) -> tuple[list[str], dict[str, int]]:
    """All faults of the site's pages in both views, and how much was looked at."""
    site = site.resolve()
    names = [name for name in pages_of(site) if only in name]
    if not names:
        return [f"{site}: no page found; build the book first"], {"pages": 0}
    with served(site) as home, ThreadPoolExecutor(len(VIEWS)) as pool:
        looks = [
            pool.submit(look_at_all, home, names, view, browser, shots)
            for view in VIEWS
        ]
        found = [look.result() for look in looks]
    faults = [fault for faults, _ in found for fault in faults]
    return faults, {"pages": len(names), "code cells": found[0][1]}


def main(arguments: list[str]) -> int:
    """Check a site and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", nargs="?", default="_build/html", type=Path)
    parser.add_argument("--only", default="", help="pages whose path contains this")
    parser.add_argument("--require", action="store_true", help="no browser is a fault")
    parser.add_argument("--shots", type=Path, help="a folder for pictures of the pages")
    given = parser.parse_args(arguments)
    browser = find_browser()
    missing = [] if browser else ["no Chromium or Chrome found"]
    for package in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(package) is None:
            missing.append(f"the package {package} is not installed")
    if missing:
        print(
            f"Not checked in a browser ({' and '.join(missing)}): "
            "accessibility, width of code cells, scripts, requests."
        )
        return 2 if given.require else 0
    faults, counts = check(given.site, browser, given.only, given.shots)
    for line in faults:
        print(line, file=sys.stderr)
    looked = ", ".join(f"{number} {name}" for name, number in counts.items())
    print(f"Looked at {looked}, {' and '.join(VIEWS)}: {len(faults)} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
