"""Everything a page loads comes from the site itself: MathJax, the chart library, and nothing for thebe."""

import importlib.util
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

# The parts of MathJax that its `tex-mml-chtml` component can ask for.
MATHJAX = ["tex-mml-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2", "a11y", "sre"]

# Altair's own loader skips the content delivery network when it finds its three versions declared. The charts are
# drawn as SVG on a transparent ground, so that they are sharp, and follow the page into dark mode like figures do.
CHARTS = """\
(function () {{
{bundle}
const quiet = {{
  renderer: "svg", actions: false,
  config: {{
    background: null, font: "system-ui, sans-serif", view: {{ stroke: null }},
    axis: {{ labelFontSize: 12, titleFontSize: 12, gridOpacity: 0.4 }},
    legend: {{ labelFontSize: 12, titleFontSize: 12 }},
    range: {{ category: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"] }}
  }}
}};
const embed = window.vegaEmbed;
window.vegaEmbed = (element, spec, options) => embed(element, spec, Object.assign({{}}, quiet, options));
window.VEGA_DEBUG = {{
  vega_version: "{vega_version}", vegalite_version: "{lite_version}", vegaembed_version: "{embed_version}"
}};
}})();
"""


def copy_mathjax(app: Sphinx) -> None:
    """Copy MathJax and its fonts from the installed package into the site, once."""
    source = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX:
        if (target / part).exists():
            continue
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (source / part).is_dir() else shutil.copyfile)(source / part, target / part)


def write_charts_bundle(app: Sphinx) -> None:
    """Write Vega, Vega-Lite and Vega-Embed, wrapped for Altair's loader, into the site, once for each version."""
    import altair
    import vl_convert

    versions = {
        "vega_version": altair.VEGA_VERSION,
        "lite_version": altair.VEGALITE_VERSION,
        "embed_version": altair.VEGAEMBED_VERSION,
    }
    target = Path(app.outdir) / "_static" / f"charts-{'-'.join(versions.values())}.js"
    app.env.book_charts = target.name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    exports = "window.vega = vega; window.vegaLite = vegaLite; window.vegaEmbed = vegaEmbed;"
    script = CHARTS.format(bundle=vl_convert.javascript_bundle(exports), **versions)
    target.write_text(script, encoding="utf-8")


def find_charts(app: Sphinx, doctree: nodes.document) -> None:
    """Remember whether a page holds an Altair chart."""
    has_chart = any("vegaEmbed" in node.astext() for node in doctree.findall(nodes.raw))
    app.env.metadata[app.env.docname]["book_has_chart"] = has_chart


def drop_thebe(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Take out the settings that sphinx-thebe writes into every notebook's page."""
    for node in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in node.astext() or node.astext().startswith("<script>kernelName"):
            node.parent.remove(node)


def tend_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Drop thebe's scripts, which load from a third party, and add the chart library where there is a chart."""
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context.get(kind, []) if "thebe" not in _content(file)]
    if app.env.metadata.get(pagename, {}).get("book_has_chart"):
        address = context["pathto"](f"_static/{app.env.book_charts}", resource=True)
        context["metatags"] = context.get("metatags", "") + f'\n<script src="{address}"></script>'


def _content(file: object) -> str:
    """The name and the inline body of a script or a style sheet that a page loads."""
    return f"{getattr(file, 'filename', file)} {getattr(file, 'attributes', {}).get('body', '')}".lower()
