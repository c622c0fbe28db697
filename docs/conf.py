"""Sphinx's settings: sphinx-build -W -q docs docs/_build/html"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

import nsvm_cli

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "nsvm"
author = "The nsvm authors"
copyright = "2026, The nsvm authors"
release = version = nsvm_cli.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "generated",
]
exclude_patterns = ["_build", "_ext", "images/make"]
needs_sphinx = "9.0"

nb_execution_mode = "off"  # the notebook shows what it printed when scripts/try ran it last
myst_enable_extensions = ["deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_update_mathjax = False
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
# scikit-learn adds it to every estimator, with references to its own pages
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request"}
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
add_module_names = False
# a type may bear the same name in two modules, and an annotation names no module
suppress_warnings = ["ref.python"]
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "nsvm"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["nsvm.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#8ab8ea", "color-brand-content": "#8ab8ea"},
}


def setup(app: Sphinx) -> None:
    """Keep what myst-nb writes with Sphinx's own files: it would be beside the built pages."""
    app.connect("builder-inited", _move_notebooks, priority=600)  # after myst-nb has chosen the folder


def _move_notebooks(app: Sphinx) -> None:
    folder = Path(app.doctreedir) / "notebooks"
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(folder))  # type: ignore[attr-defined]
