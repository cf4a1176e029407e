"""Parts of a summary as figures for plotly.js: plain data, whose colours the page's style names.

A colour such as ``@accent`` or ``@class-2`` is a name that the page looks up, so that figures follow light and dark.
Text from the data passes through `plain`, because plotly.js reads a little HTML in labels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from polymargin.inspection.relevance import shortened

Summary = dict[str, Any]
Figure = dict[str, Any]

_LONG = 28
_MANY_CLASSES = 40
#: The confusion matrix of more classes is a heat map, of fewer a table.
LARGEST_TABLE = 20


def figures(summary: Summary) -> dict[str, Figure]:
    """Return the figures of a summary by section."""
    found = {"codebook": _codebook(summary)} if summary["model"]["codebook"] else {}
    if len(summary["classes"]) > LARGEST_TABLE:
        found["confusion"] = _confusion(summary)
    if summary["reliability"]:
        found |= {"reliability": _reliability(summary), "histograms": _histograms(summary)}
    if summary["model"]["relevance"]:
        found["relevance"] = _relevance(summary["model"]["relevance"])
    if "missing" not in summary["model"]["surface"]:
        found["surface"] = _surface(summary["model"]["surface"])
    if "missing" not in summary["model"]["regions"]:
        found["regions"] = _regions(summary)
    return found


def plain(text: object, longest: int = _LONG) -> str:
    """Return text that plotly.js shows as it is, shortened if it is long.

    Examples
    --------
    >>> plain("<b>x</b> & y")
    '&lt;b&gt;x&lt;/b&gt; &amp; y'
    """
    return shortened(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _reliability(summary: Summary) -> Figure:
    views = []
    for view in summary["reliability"]["views"]:
        observed = np.array(view["observed"])
        views.append(
            {
                "name": shortened(view["name"], 40),
                "data": [
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "x": [0, 1],
                        "y": [0, 1],
                        "line": {"color": "@muted", "dash": "dot", "width": 1.5},
                        "hoverinfo": "skip",
                    },
                    {
                        "type": "scatter",
                        "mode": "lines+markers",
                        "x": view["predicted"],
                        "y": view["observed"],
                        "customdata": np.column_stack([view["count"], view["low"], view["high"]]).tolist(),
                        "error_y": {
                            "type": "data",
                            "symmetric": False,
                            "array": (np.array(view["high"]) - observed).tolist(),
                            "arrayminus": (observed - np.array(view["low"])).tolist(),
                            "color": "@accent/0.45",
                            "thickness": 1.5,
                            "width": 3,
                        },
                        "marker": {"color": "@accent", "size": 8},
                        "line": {"color": "@accent/0.5", "width": 1.5},
                        "hovertemplate": "predicted %{x:.3f}<br>observed %{y:.3f}"
                        "<br>between %{customdata[1]:.3f} and %{customdata[2]:.3f}"
                        "<br>%{customdata[0]} predictions<extra></extra>",
                    },
                ],
            }
        )
    axis = {"range": [-0.02, 1.02], "tickvals": [0, 0.25, 0.5, 0.75, 1]}
    return {
        "views": views,
        "choose": "Show the",
        "height": 400,
        "layout": {
            "xaxis": axis | {"title": {"text": "mean predicted probability"}},
            "yaxis": axis | {"title": {"text": "observed frequency"}},
        },
    }


def _histograms(summary: Summary) -> Figure:
    edges = np.array(summary["histograms"]["edges"])
    middle, width = (0.5 * (edges[1:] + edges[:-1])).tolist(), float(edges[1] - edges[0])
    spans = [f"{low:.2f} to {high:.2f}" for low, high in pairwise(edges)]
    views = [
        {
            "name": shortened(view["name"], 40),
            "data": [
                {
                    "type": "bar",
                    "name": series["name"],
                    "x": middle,
                    "y": series["counts"],
                    "width": width * 0.92,
                    "customdata": spans,
                    "marker": {"color": colour},
                    "hovertemplate": f"%{{customdata}}<br>%{{y}} {series['name']}<extra></extra>",
                }
                for series, colour in zip(view["series"], ("@accent", "@bad"), strict=True)
            ],
        }
        for view in summary["histograms"]["views"]
    ]
    return {
        "views": views,
        "choose": "Show the",
        "height": 400,
        "layout": {
            "barmode": "stack",
            "showlegend": True,
            "xaxis": {
                "title": {"text": "predicted probability"},
                "range": [0, 1],
                "tickvals": [0, 0.25, 0.5, 0.75, 1],
            },
            "yaxis": {"title": {"text": "predictions"}, "rangemode": "tozero"},
        },
    }


def _relevance(found: Summary) -> Figure:
    rows = found["rows"][: found["drawn"]]
    shares = [row["relevance"] for row in rows]
    bars: Figure = {
        "type": "bar",
        "orientation": "h",
        "x": shares,
        "y": list(range(len(rows))),
        "text": [plain(row["name"]) for row in rows],
        "textposition": "none",
        "marker": {"color": "@accent"},
        "hovertemplate": "%{text}: %{x:.1%}<extra></extra>",
    }
    if found["spread_known"]:
        spreads = [row["std"] for row in rows]
        bars["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": spreads,
            "arrayminus": [min(spread, share) for spread, share in zip(spreads, shares, strict=True)],
            "color": "@ink/0.6",
            "thickness": 1.5,
            "width": 3,
        }
        bars["customdata"] = spreads
        bars["hovertemplate"] = "%{text}: %{x:.1%} ± %{customdata:.1%}<extra></extra>"
    return {
        "views": [{"name": "", "data": [bars]}],
        "height": 90 + 26 * max(len(rows), 4),
        "width": 820,
        "layout": {
            "xaxis": {
                "title": {"text": "share of the sensitivity"},
                "tickformat": ".0%",
                "rangemode": "tozero",
            },
            "yaxis": {
                "autorange": "reversed",
                "showgrid": False,
                "tickvals": list(range(len(rows))),
                "ticktext": [plain(row["name"]) for row in rows],
            },
        },
    }


def _codebook(summary: Summary) -> Figure:
    names = summary["classes"]
    most = max(len(view["matrix"][0]) for view in summary["model"]["codebook"]["views"])
    views = []
    for view in summary["model"]["codebook"]["views"]:
        matrix = np.array(view["matrix"])
        side = {-1: "−", 0: "not used", 1: "+"}
        data: Figure = {
            "type": "heatmap",
            "z": matrix.tolist(),
            "x": list(range(1, matrix.shape[1] + 1)),
            "y": list(range(len(names))),
            "text": [[f"{plain(names[k])}: {side[int(v)]}" for v in line] for k, line in enumerate(matrix)],
            "zmin": -1,
            "zmax": 1,
            "colorscale": [
                [0, "@minus"], [1 / 3, "@minus"], [1 / 3, "@blank"], [2 / 3, "@blank"], [2 / 3, "@plus"], [1, "@plus"],
            ],
            "showscale": False,
            "hovertemplate": "machine %{x}<br>%{text}<extra></extra>",
        }  # fmt: skip
        gap = 3 if matrix.shape[1] <= 30 and len(names) <= 30 else 0
        views.append({"name": shortened(view["name"], 40), "data": [data | {"xgap": gap, "ygap": gap}]})
    return {
        "views": views,
        "choose": "Coding",
        "height": int(np.clip(90 + 36 * len(names), 180, 560)),
        "width": 150 + 64 * most,
        "layout": {
            "xaxis": {"title": {"text": "machine"}, "showgrid": False, "tick0": 1, "dtick": 1 + most // 12},
            "yaxis": {"autorange": "reversed", "showgrid": False, **_class_ticks(names)},
        },
    }


def _confusion(summary: Summary) -> Figure:
    names = summary["classes"]
    counts = np.array(summary["confusion"]["counts"])
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts = [plain(name, 24) for name in names]
    data = {
        "type": "heatmap",
        # The square root lets a few errors be seen beside the diagonal.
        "z": np.round(np.sqrt(counts / totals), 4).tolist(),
        "x": list(range(len(names))),
        "y": list(range(len(names))),
        "customdata": counts.tolist(),
        "text": [[f"{true} predicted as {predicted}" for predicted in texts] for true in texts],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "@blank"], [0.02, "@surface-low"], [1, "@surface-high"]],
        "showscale": False,
        "hovertemplate": "%{text}: %{customdata}<extra></extra>",
    }
    ticks = _class_ticks(names)
    return {
        "views": [{"name": "", "data": [data]}],
        "height": int(np.clip(140 + 7 * len(names), 420, 900)),
        "width": 900,
        "layout": {
            "xaxis": {"title": {"text": "predicted class"}, "showgrid": False, "tickangle": -60, **ticks},
            "yaxis": {"title": {"text": "true class"}, "autorange": "reversed", "showgrid": False, **ticks},
        },
    }


def _class_ticks(names: list[str]) -> Figure:
    """Return the names of the classes at their positions, as many as there is room for."""
    step = 1 + (len(names) - 1) // _MANY_CLASSES
    shown = range(0, len(names), step)
    return {"tickvals": list(shown), "ticktext": [plain(names[k], 16) for k in shown]}


def _surface(found: Summary) -> Figure:
    star = {
        "type": "scatter",
        "mode": "markers",
        "x": found["chosen_C"],
        "marker": {"symbol": "star", "size": 15, "color": "@star", "line": {"color": "@paper", "width": 1.5}},
    }
    favoured = [found["shrinkage"] * C for C in found["chosen_C"]]
    ring = star | {
        "x": favoured,
        "marker": {"symbol": "circle-open", "size": 11, "color": "@star", "line": {"width": 2}},
    }
    # A ring where C was made smaller than the criterion would have it.
    marks = [star] if found["shrinkage"] == 1.0 else [ring, star]
    decades = {"type": "log", "dtick": 1, "exponentformat": "power"}
    C_axis = decades | {"title": {"text": "C (less regularisation to the right)"}}
    values = np.array(found["values"], dtype=np.float64)
    if len(found["gamma"]) == 1:
        for mark in marks:
            mark["y"] = np.interp(np.log(mark["x"]), np.log(found["C"]), values[0]).tolist()
        line = {
            "type": "scatter",
            "mode": "lines",
            "x": found["C"],
            "y": found["values"][0],
            "line": {"color": "@accent", "width": 2},
            "hovertemplate": "C = %{x:.3g}<br>%{y:.4g}<extra></extra>",
        }
        star["hovertemplate"] = "chosen: C = %{x:.3g}<extra></extra>"
        ring["hovertemplate"] = "favoured by the criterion: C = %{x:.3g}<extra></extra>"
        layout = {"xaxis": C_axis, "yaxis": {"title": {"text": found["label"]}}}
        return {"views": [{"name": "", "data": [line, *marks]}], "height": 380, "layout": layout}
    # Otherwise the worst corners would take up the colour scale.
    worst = float(np.nanquantile(values, 0.1 if found["greater_is_better"] else 0.9))
    best = float(np.nanmax(values) if found["greater_is_better"] else np.nanmin(values))
    surface = {
        "type": "contour",
        "x": found["C"],
        "y": found["gamma"],
        "z": found["values"],
        "zmin": min(worst, best),
        "zmax": max(worst, best),
        "ncontours": 18,
        "line": {"width": 0.5, "color": "@paper/0.5"},
        "colorscale": [[0, "@surface-low"], [1, "@surface-high"]] if found["greater_is_better"] else
        [[0, "@surface-high"], [1, "@surface-low"]],
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickformat": ".3~g", "nticks": 5},
        "hovertemplate": "C = %{x:.3g}<br>gamma = %{y:.3g}<br>" + found["label"] + " %{z:.4g}<extra></extra>",
    }  # fmt: skip
    for mark in marks:
        mark["y"] = found["chosen_gamma"]
    star["hovertemplate"] = "chosen: C = %{x:.3g}, gamma = %{y:.3g}<extra></extra>"
    ring["hovertemplate"] = "favoured by the criterion: C = %{x:.3g}, gamma = %{y:.3g}<extra></extra>"
    return {
        "views": [{"name": "", "data": [surface, *marks]}],
        "height": 400,
        "layout": {"xaxis": C_axis, "yaxis": decades | {"title": {"text": "gamma"}}},
    }


def _regions(summary: Summary) -> Figure:
    found, names = summary["model"]["regions"], summary["classes"]
    label, probability = np.array(found["label"]), np.array(found["probability"])
    n_classes = len(names)
    # A class has one unit of the scale, from pale where it is barely ahead to strong where it is certain.
    sure = np.clip((probability - 1 / n_classes) / (1 - 1 / n_classes), 0.0, 1.0)
    scale: list[list[Any]] = []
    for k in range(n_classes):
        scale += [[k / n_classes, f"@class-{k}/0.04"], [(k + 1) / n_classes, f"@class-{k}/0.5"]]
    plane = {
        "type": "heatmap",
        "x": [float(f"{value:.6g}") for value in found["x"]],
        "y": [float(f"{value:.6g}") for value in found["y"]],
        "z": np.round(label + 0.998 * sure + 0.001, 4).tolist(),
        "customdata": probability.tolist(),
        "text": [[plain(names[k]) for k in line] for line in label],
        "zmin": 0,
        "zmax": n_classes,
        "colorscale": scale,
        "showscale": False,
        "hovertemplate": "%{text}: %{customdata:.3f}<extra></extra>",
    }
    points, classes = np.array(found["points"]), np.array(found["point_classes"])
    rows = np.array(found["point_rows"])
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(name),
            "x": points[classes == k, 0].tolist(),
            "y": points[classes == k, 1].tolist(),
            "customdata": rows[classes == k].tolist(),
            "text": [plain(name)] * int((classes == k).sum()),
            "marker": {"color": f"@class-{k}", "size": 7, "line": {"color": "@paper", "width": 1}},
            "hovertemplate": "row %{customdata}, %{text}<extra></extra>",
        }
        for k, name in enumerate(names)
    ]
    across, up = found["axis_names"]
    return {
        "views": [{"name": "", "data": [plane, *dots]}],
        "height": 520,
        "width": 820,
        "layout": {
            "showlegend": n_classes <= 12,
            "xaxis": {"title": {"text": plain(across)}, "showgrid": False, "zeroline": False},
            "yaxis": {"title": {"text": plain(up)}, "showgrid": False, "zeroline": False},
        },
    }
