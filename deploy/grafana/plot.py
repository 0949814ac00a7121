#!/usr/bin/env python3
"""Plots what the board's panels would show, from a running Prometheus, into a picture.

    deploy/grafana/plot.py --url http://127.0.0.1:9090 --minutes 10 --out board.png [--row "At a glance" --row "Answers" ...]

It is not Grafana: it reads the panels, their places and their expressions out of okapi-auth-sidecar.json, asks Prometheus the
same queries, and draws the same series with matplotlib. The picture says so.
"""

import argparse
import json
import math
import pathlib
import re
import time
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates
import matplotlib.pyplot as plt
from datetime import datetime, timezone

HERE = pathlib.Path(__file__).resolve().parent
CAPTION = "The same series as the Grafana board, asked of Prometheus and drawn with matplotlib. Not a picture of Grafana."
COLOURS = {"green": "#56a64b", "semi-dark-green": "#96d98d", "orange": "#ff780a", "red": "#e02f44", "blue": "#3274d9", "purple": "#a352cc"}
UNIT_HEIGHT, UNIT_WIDTH = 0.42, 0.72  # inches per cell of the board's grid


def human(value, unit):
    """A value as Grafana's unit of that name shows it, roughly."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min")):
            if abs(value) < limit:
                return f"{value * factor:.3g} {name}" if value else "0"
        return f"{value / 3600:.3g} h"
    if unit == "bytes":
        for name in ("B", "KiB", "MiB"):
            if abs(value) < 1024:
                return f"{value:.3g} {name}"
            value /= 1024
        return f"{value:.3g} GiB"
    suffix = {"reqps": " req/s", "ops": " ops/s"}.get(unit, "")
    return (f"{value / 1000:.3g} k" if abs(value) >= 10000 else f"{value:.3g}") + suffix


class Prometheus:
    """The two queries that panels make."""

    def __init__(self, url, start, end, step, window):
        self.url, self.start, self.end, self.step, self.window = url, start, end, step, window

    def fill_in(self, expression):
        expression = expression.replace("$__rate_interval", f"{self.window}s").replace("$__range", f"{int(self.end - self.start)}s")
        return re.sub(r"\$(namespace|pod|tenant)\b", ".*", expression)

    def ask(self, path, **arguments):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    def series(self, target):
        """[(legend, times, values)] of a curve."""
        found = []
        for row in self.ask("query_range", query=self.fill_in(target["expr"]), start=self.start, end=self.end, step=self.step):
            points = [(datetime.fromtimestamp(at, timezone.utc), float(value)) for at, value in row["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                found.append((legend(target["legendFormat"], row["metric"]), *zip(*points)))
        return found

    def values(self, target):
        """[(legend, value)] at the end."""
        rows = self.ask("query", query=self.fill_in(target["expr"]), time=self.end)
        return [(legend(target["legendFormat"], row["metric"]), float(row["value"][1])) for row in rows]


def legend(template, labels):
    if template == "__auto":
        return ""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template).strip()


def draw_stat(axes, panel, prometheus):
    axes.set_axis_off()
    found = [row for target in panel["targets"] for row in prometheus.values(target)]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    text = "  ".join(f"{name} {human(value, unit)}".strip() for name, value in found if math.isfinite(value)) or "no data"
    axes.text(0.5, 0.42, text, ha="center", va="center", fontsize=17 if found else 11, color="#222" if found else "#999")
    axes.set_title(panel["title"], fontsize=9)


def draw_lines(axes, panel, prometheus):
    defaults = panel["fieldConfig"]["defaults"]
    colours = {o["matcher"]["options"]: o["properties"][0]["value"]["fixedColor"] for o in panel["fieldConfig"]["overrides"]}
    series = [one for target in panel["targets"] for one in prometheus.series(target)]
    # What is zero all the time would only fill the legend.
    shown = [one for one in series if any(one[2])] or series[:1]
    bars = defaults["custom"]["drawStyle"] == "bars"
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    below = {}
    for number, (name, times, values) in enumerate(sorted(shown)):
        # tab20 twice: thirteen reasons must not look alike.
        colour = COLOURS.get(colours.get(name), colours.get(name)) or plt.cm.tab20(number * 2 % 20 + (number >= 10))
        if stacked:
            bottoms = [below.get(at, 0.0) for at in times]
            tops = [bottom + value for bottom, value in zip(bottoms, values)]
            if bars:
                axes.bar(times, values, bottom=bottoms, width=prometheus.step / 86400, label=name, color=colour)
            else:
                axes.fill_between(times, bottoms, tops, alpha=0.55, label=name, color=colour, linewidth=0)
            below.update(zip(times, tops))
        else:
            axes.plot(times, values, label=name, color=colour, linewidth=1.2)
    axes.set_title(panel["title"], fontsize=9, loc="left")
    axes.set_xlim(datetime.fromtimestamp(prometheus.start, timezone.utc), datetime.fromtimestamp(prometheus.end, timezone.utc))
    axes.xaxis.set_major_locator(matplotlib.dates.AutoDateLocator(minticks=3, maxticks=5))
    axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
    axes.yaxis.set_major_formatter(lambda value, _: human(value, defaults["unit"]))
    axes.set_ylim(bottom=0, top=defaults.get("max"))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25)
    if shown and any(name for name, _, _ in shown):
        axes.legend(fontsize=6.5, loc="upper left", framealpha=0.7, ncols=2 if len(shown) > 6 else 1)
    if not series:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#999")


def rows_of(board, wanted):
    """[(row title, panels)], the wanted ones or all."""
    rows = []
    for panel in board["panels"]:
        if panel["type"] == "row":
            rows.append((panel["title"], []))
        else:
            rows[-1][1].append(panel)
    unknown = set(wanted) - {title for title, _ in rows}
    if unknown:
        raise SystemExit(f"no such row: {', '.join(sorted(unknown))}; there are: {', '.join(title for title, _ in rows)}")
    return [row for row in rows if not wanted or row[0] in wanted]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--url", required=True, help="Prometheus")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--end", type=float, help="seconds since 1970; now when left out")
    arguments.add_argument("--window", type=int, default=30, help="seconds for $__rate_interval; four scrapes at least")
    arguments.add_argument("--row", action="append", default=[], help="title of a row of the board; all when left out")
    arguments.add_argument("--board", type=pathlib.Path, default=HERE / "okapi-auth-sidecar.json")
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    given = arguments.parse_args()

    end = given.end or time.time()
    length = given.minutes * 60
    prometheus = Prometheus(given.url, end - length, end, max(1, round(length / 240)), given.window)
    rows = rows_of(json.loads(given.board.read_text()), given.row)

    # Rows that were left out leave no gap.
    placed, top = [], 1.5
    for title, panels in rows:
        first = min(panel["gridPos"]["y"] for panel in panels)
        placed += [("row", title, top)] + [("panel", panel, top + 1 + panel["gridPos"]["y"] - first) for panel in panels]
        top += 1 + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) - first
    figure = plt.figure(figsize=(24 * UNIT_WIDTH, (top + 0.8) * UNIT_HEIGHT), facecolor="white")
    height = top + 0.8
    for kind, what, y in placed:
        if kind == "row":
            figure.text(0.012, 1 - (y + 0.75) / height, what.split(" ($")[0], fontsize=12, weight="bold", color="#333")
            continue
        place = what["gridPos"]
        margin_x, margin_top, margin_bottom = 1.15 if what["type"] != "stat" else 0.1, 0.75, 0.75
        box = [
            (place["x"] + margin_x) / 24, 1 - (y + place["h"] - margin_bottom) / height,
            (place["w"] - margin_x - 0.25) / 24, (place["h"] - margin_top - margin_bottom) / height,
        ]
        axes = figure.add_axes(box)
        (draw_stat if what["type"] == "stat" else draw_lines)(axes, what, prometheus)
    begin = datetime.fromtimestamp(prometheus.start, timezone.utc)
    figure.text(0.012, 1 - 0.9 / height, f"Okapi auth sidecar, {given.minutes:g} minutes from {begin:%Y-%m-%d %H:%M} UTC", fontsize=15, weight="bold")
    figure.text(0.012, 0.35 / height, CAPTION, fontsize=10, color="#a00")
    figure.savefig(given.out, dpi=80)


if __name__ == "__main__":
    main()
