"""How Sphinx builds the documentation: ``make docs``."""

import os
import sys
import warnings
from pathlib import Path

import matplotlib
from sphinx_gallery.sorting import ExplicitOrder

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
matplotlib.use("Agg")

from polymargin import __version__  # noqa: E402

project = "polymargin"
author = "The polymargin developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    # Our own, in docs/_extensions.
    "mathml",
    "reference_pages",
    "paper_tables",
    "stored_results",
]
exclude_patterns = ["_build", "_templates", "gallery/*.ipynb", "gallery/*.py", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "py:obj"
language = "en"
nitpicky = False

# Pages are written in Markdown.
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "substitution"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# The reference is written by autosummary from numpydoc's docstrings.
autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# The gallery: every example is run, and each of its figures is shown.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"[\\/]plot_",
    "subsection_order": ExplicitOrder(
        [f"../examples/{name}" for name in ("probabilities", "models", "data", "own", "use")]
    ),
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "thumbnail_size": (400, 280),
    "matplotlib_animations": False,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "plot_gallery": True,
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "capture_repr": (),
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "copyfile_regex": r".*\.svg",
}

html_theme = "pydata_sphinx_theme"
html_title = "polymargin"
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "polymargin", "alt_text": "polymargin, home"},
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Threads of examples differ between machines; what is drawn does not depend on them.
warnings.filterwarnings("ignore", message=".*is non-interactive, and thus cannot be shown.*")


def skip_what_is_not_ours(app, what, name, thing, skip, options):
    """Leave out of a class what it inherits from scikit-learn, which has a reference of its own."""
    function = getattr(thing, "fget", None) or getattr(thing, "fn", None) or getattr(thing, "__func__", thing)
    module = getattr(function, "__module__", None) or ""
    return True if module.startswith(("sklearn", "builtins", "abc", "typing")) else skip


def setup(app):
    """Register what this file adds to Sphinx."""
    app.connect("autodoc-skip-member", skip_what_is_not_ours)
