"""Print the rendered book: one PDF a chapter, and the whole as one, with bookmarks.

    python tools/make_pdf.py [SITE]      default: _build/html; writes _build/pdf

It needs the site that `make book` renders, and Chromium or Chrome, which prints the
pages. What is folded on the site is open on paper.
"""

import sys
from pathlib import Path

import yaml
from check_pages import find_browser
from playwright.sync_api import Page, sync_playwright
from pypdf import PdfWriter

ROOT = Path(__file__).resolve().parent.parent
# All equations are set, all that folds is open, all pictures are there.
READY = """async () => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  document.querySelectorAll(".toggle-hidden").forEach((part) => {
    part.classList.remove("toggle-hidden");
  });
  document.querySelectorAll("img").forEach((image) => { image.loading = "eager"; });
  await window.MathJax?.startup?.promise;
  await Promise.all([...document.images].map((image) => image.decode().catch(() => 0)));
}"""
PAPER = {
    "format": "A4",
    "scale": 0.75,  # so that lines of code and long equations fit
    "print_background": True,
    "outline": True,
    "tagged": True,
    "margin": {side: "18mm" for side in ("top", "bottom", "left", "right")},
}


def parts_of_the_book() -> dict[str, list[str]]:
    """The pages in the order of the table of contents, by the title of their part."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = {"": [toc["root"]]}
    for part in toc["parts"]:
        parts[part["caption"]] = [entry["file"] for entry in part["chapters"]]
    return parts


def print_page(page: Page, site: Path, name: str, target: Path) -> str:
    """Print one page of the site; its title."""
    page.goto((site / f"{name}.html").as_uri())
    page.evaluate(READY)
    page.pdf(path=target, **PAPER)
    return page.title().partition(" — ")[0]


def main(site: Path) -> None:
    """Print all pages, then bind them."""
    if not (site / "index.html").is_file():
        sys.exit(f"{site} holds no site: run make book first")
    if (browser := find_browser()) is None:
        sys.exit("no Chromium or Chrome is there to print with: install one")
    folder = ROOT / "_build" / "pdf"
    folder.mkdir(parents=True, exist_ok=True)
    whole = PdfWriter()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser)
        page = chromium.new_page(color_scheme="light", reduced_motion="reduce")
        for caption, names in parts_of_the_book().items():
            above = None
            for name in names:
                target = folder / f"{Path(name).name}.pdf"
                title, first = print_page(page, site, name, target), len(whole.pages)
                whole.append(target, import_outline=False)
                if caption and above is None:
                    above = whole.add_outline_item(caption, first)
                whole.add_outline_item(title, first, parent=above)
                print(f"  {target.name}: {len(whole.pages) - first} pages", flush=True)
        chromium.close()
    book = folder / "annotated-transformer.pdf"
    whole.write(book)
    print(f"{book.relative_to(ROOT)}: {len(whole.pages)} pages")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "_build" / "html"))
