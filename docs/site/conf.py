"""The configuration of the site, for sphinx-build. scripts/docs.sh runs it on the pages that stage.py has written."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = (ROOT / "include" / "rdmacomm" / "version.h").read_text(encoding="utf-8")

project = "rdmacomm"
version = release = ".".join(re.findall(r"^#define RDMACOMM_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", HEADER, re.M))
extensions = ["myst_parser", "breathe"]
myst_heading_anchors = 6  # the anchors that GitHub gives to headings
breathe_projects = {"rdmacomm": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "rdmacomm"
breathe_show_include = False
highlight_language = "none"  # of indented code; fenced code names its language

# Both can be read on the backgrounds of the theme: contrasts of at least 4.5.
pygments_style = "default"
pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = f"rdmacomm {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    # The theme's stylesheet in Debian has dark colours only for a reader who presses the button, not for a system that prefers dark.
    "dark_css_variables": {
        "color-foreground-primary": "#d8dade",
        "color-foreground-secondary": "#a2a7ae",
        "color-foreground-muted": "#8c929a",
        "color-foreground-border": "#5c6167",
        "color-background-primary": "#14161a",
        "color-background-secondary": "#1c1f24",
        "color-background-hover": "#24282e",
        "color-background-hover--transparent": "#24282e00",
        "color-background-border": "#33383f",
        "color-background-item": "#484d54",
        "color-brand-primary": "#6cb0ff",
        "color-brand-content": "#6cb0ff",
        "color-problematic": "#ff8b7d",
        "color-highlighted-background": "#173a63",
        "color-highlight-on-target": "#3a3a12",
        "color-api-keyword": "#a2a7ae",
    },
}


def mend_stylesheet(app, error):
    """Removes an import that only Debian's web server can resolve; site.css has what is needed of it."""
    stylesheet = pathlib.Path(app.outdir) / "_static" / "styles" / "furo.css"
    if error is None and stylesheet.exists():
        text = stylesheet.read_text(encoding="utf-8")
        stylesheet.write_text(re.sub(r"@import url\(/[^)]*\);", "", text), encoding="utf-8")


def setup(app):
    app.connect("build-finished", mend_stylesheet)
