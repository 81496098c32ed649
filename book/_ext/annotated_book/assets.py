"""Everything a page loads comes from the site itself: MathJax, the chart library, and
nothing for thebe."""

import importlib.util
import shutil
import zlib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

# The parts of MathJax that its `tex-mml-chtml` component can ask for.
MATHJAX = [
    "tex-mml-chtml.js",
    "input/tex/extensions",
    "output/chtml/fonts/woff-v2",
    "a11y",
    "sre",
]

# Altair's own loader skips the content delivery network when it finds its three
# versions declared. The charts are drawn as SVG on a transparent ground, so that they
# are sharp, and follow the page into dark mode like figures do.
CHARTS = """\
(function () {{
{bundle}
const quiet = {{
  renderer: "svg", actions: false,
  config: {{
    background: null, font: "system-ui, sans-serif", view: {{ stroke: null }},
    axis: {{ labelFontSize: 12, titleFontSize: 12, gridOpacity: 0.4 }},
    legend: {{ labelFontSize: 12, titleFontSize: 12 }},
    range: {{ category: [
      "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"
    ] }}
  }}
}};
const embed = window.vegaEmbed;
// A chart may be drawn before the page has its sidebars, and so its width: once it has,
// the chart fits itself to it, and likewise when the box around it is unfolded.
const fit = () => window.dispatchEvent(new Event("resize"));
document.addEventListener("toggle", fit, true);
window.vegaEmbed = async (element, spec, options) => {{
  const chart = await embed(element, spec, Object.assign({{}}, quiet, options));
  if (document.readyState === "complete") fit();
  else window.addEventListener("load", fit);
  return chart;
}};
window.VEGA_DEBUG = {{
  vega_version: "{vega_version}", vegalite_version: "{lite_version}",
  vegaembed_version: "{embed_version}"
}};
}})();
"""


def copy_mathjax(app: Sphinx) -> None:
    """Copy MathJax and its fonts from the installed package into the site, once."""
    source = (
        Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
        / "static"
        / "mathjax"
    )
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX:
        if (target / part).exists():
            continue
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (source / part).is_dir() else shutil.copyfile)(
            source / part, target / part
        )


def write_charts_bundle(app: Sphinx) -> None:
    """Write Vega, Vega-Lite and Vega-Embed, wrapped for Altair's loader, into the site,
    once for each version."""
    import altair
    import vl_convert

    versions = {
        "vega_version": altair.VEGA_VERSION,
        "lite_version": altair.VEGALITE_VERSION,
        "embed_version": altair.VEGAEMBED_VERSION,
    }
    name = "-".join(
        ["charts", *versions.values(), f"{zlib.crc32(CHARTS.encode()):08x}"]
    )
    target = Path(app.outdir) / "_static" / f"{name}.js"
    app.env.book_charts = target.name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    exports = (
        "window.vega = vega; window.vegaLite = vegaLite; window.vegaEmbed = vegaEmbed;"
    )
    script = CHARTS.format(bundle=vl_convert.javascript_bundle(exports), **versions)
    target.write_text(script, encoding="utf-8")


def find_charts(app: Sphinx, doctree: nodes.document) -> None:
    """Remember whether a page holds an Altair chart."""
    has_chart = any("vegaEmbed" in node.astext() for node in doctree.findall(nodes.raw))
    app.env.metadata[app.env.docname]["book_has_chart"] = has_chart


def drop_thebe(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Take out the settings that sphinx-thebe writes into every notebook's page."""
    for node in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in node.astext() or node.astext().startswith(
            "<script>kernelName"
        ):
            node.parent.remove(node)


def tend_scripts(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict,
    doctree: nodes.document | None,
) -> None:
    """Load what a page needs and no more: MathJax where there is math, the chart
    library where there is a chart.

    Thebe's scripts, which come from a third party, are dropped everywhere.
    """
    has_math = doctree is not None and any(
        isinstance(n, nodes.math | nodes.math_block) for n in doctree.findall()
    )
    unwanted = ["thebe"] if has_math else ["thebe", "mathjax"]
    for kind in ("script_files", "css_files"):
        files = context.get(kind, [])
        context[kind] = [
            file
            for file in files
            if not any(name in _content(file) for name in unwanted)
        ]
    if app.env.metadata.get(pagename, {}).get("book_has_chart"):
        address = context["pathto"](f"_static/{app.env.book_charts}", resource=True)
        context["metatags"] = (
            context.get("metatags", "") + f'\n<script src="{address}"></script>'
        )


def drop_icon_script(app: Sphinx, exception: Exception | None) -> None:
    """Empty the theme's icon script, 1.5 MB: its style sheet draws the same icons from
    a font."""
    script = Path(app.outdir) / "_static" / "scripts" / "fontawesome.js"
    if exception is None and script.exists():
        script.write_text(
            "/* The icons come from the style sheet's font. */\n", encoding="utf-8"
        )


def _content(file: object) -> str:
    """The name and the inline body of a script or a style sheet that a page loads."""
    name, attributes = getattr(file, "filename", file), getattr(file, "attributes", {})
    return f"{name} {attributes.get('body', '')}".lower()
