"""The report: a summary as plain values first, then one HTML page that opens offline.

`fit_summary` and `compare_summary` return dictionaries of lists, numbers and strings; `write_page` turns either into
a page through templates that escape everything.

Needs jinja2 and plotly: install polymargin with its report extra.
"""

try:
    import jinja2  # noqa: F401
    import plotly  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"reports need jinja2 and plotly, and {error.name} is not installed: install polymargin with its report extra"
    ) from error

from polymargin.report.page import write_page
from polymargin.report.summaries import compare_summary, fit_summary

__all__ = ["compare_summary", "fit_summary", "write_page"]
