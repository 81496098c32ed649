"""The book's drawings, with links that work where the notebook is shown."""

import os
import sys
from importlib.metadata import metadata
from importlib.resources import files


def linked_figure(name: str) -> str:
    """The text of the drawing ``figures/<name>.svg`` of the package, for ``HTML``.

    Its links lead to pages of the site; in Jupyter and Colab, to the notebooks.

    Raises FileNotFoundError for a drawing that the package does not have.
    """
    path = files("annotated_transformer").joinpath(f"figures/{name}.svg")
    svg = path.read_text(encoding="utf-8")
    if "google.colab" in sys.modules:
        urls = metadata("annotated-transformer").get_all("Project-URL")
        [address] = [url.split(", ")[1] for url in urls]
        address = address.replace("github.com", "colab.research.google.com/github")
        link = f'target="_blank" href="{address}/blob/main/notebooks/'
        svg = svg.replace(".html", ".ipynb").replace('href="', link)
    elif "JPY_SESSION_NAME" in os.environ:  # set by Jupyter's server
        svg = svg.replace(".html", ".ipynb")
    return svg
