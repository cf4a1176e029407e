"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = { displaylogo: false, responsive: true, displayModeBar: coarse ? false : "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  // "@accent/0.5" is the style's --accent, half transparent; classes beyond the palette get hues far apart.
  const style = () => getComputedStyle(document.documentElement);
  const colour = (name, styles) => {
    const [base, alpha] = name.slice(1).split("/");
    const number = /^class-(\d+)$/.exec(base);
    let found = styles.getPropertyValue("--" + base).trim();
    if (!found && number) found = hue(Number(number[1]));
    if (alpha === undefined) return found;
    const parts = [1, 3, 5].map((at) => parseInt(found.slice(at, at + 2), 16));
    return `rgba(${parts.join(",")},${alpha})`;
  };
  const hue = (k) => {
    const channel = (n) => {
      const at = (n + ((k * 137.508) % 360) / 30) % 12;
      return Math.round(255 * (0.55 - 0.25 * Math.max(-1, Math.min(at - 3, 9 - at, 1)))).toString(16).padStart(2, "0");
    };
    return "#" + channel(0) + channel(8) + channel(4);
  };
  // Only what stands under a key that names a colour is looked up: a label may begin with "@" too.
  const coloured = (value, styles, key = "") => {
    if (typeof value === "string") return /color/i.test(key) && value.startsWith("@") ? colour(value, styles) : value;
    if (Array.isArray(value)) return value.map((item) => coloured(item, styles, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, styles, name)]));
    }
    return value;
  };

  const layoutOf = (figure, styles) => {
    const get = (name) => styles.getPropertyValue("--" + name).trim();
    const axis = { gridcolor: get("grid"), zeroline: false, linecolor: get("line"), automargin: true, tickfont: { size: 12 }, title: { standoff: 8 } };
    const own = figure.layout;
    const merged = (mine) => ({ ...axis, ...mine, title: { ...axis.title, font: { size: 13, color: get("muted") }, ...(mine.title || {}) } });
    return {
      ...own,
      xaxis: merged(own.xaxis), yaxis: merged(own.yaxis),
      // The buttons, which are shown on a mouse's way, stand above the figure.
      height: figure.height + (coarse ? 0 : 20), margin: { l: 52, r: 12, t: coarse ? 16 : 36, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: styles.getPropertyValue("font-family") || "system-ui, sans-serif", color: get("ink"), size: 13 },
      showlegend: Boolean(own.showlegend),
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12, color: get("muted") } },
      hoverlabel: { bgcolor: get("raised"), bordercolor: get("line"), font: { color: get("ink"), size: 13 }, align: "left", namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: get("muted"), activecolor: get("accent") },
      // On a touch screen a finger scrolls the page, it does not zoom.
      dragmode: coarse ? false : "zoom",
    };
  };

  const shown = {};
  const draw = (place) => {
    const name = place.dataset.figure;
    const figure = figures[name];
    const styles = style();
    const view = figure.views[shown[name] || 0];
    Plotly.react(place, coloured(view.data, styles), layoutOf(figure, styles), config);
  };
  const places = [...document.querySelectorAll(".plot[data-figure]")];
  for (const place of places) {
    place.textContent = "";
    draw(place);
  }
  for (const select of document.querySelectorAll("select[data-for]")) {
    select.addEventListener("change", () => {
      shown[select.dataset.for] = Number(select.value);
      draw(document.getElementById("plot-" + select.dataset.for));
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => places.forEach(draw));

  // Sorting: what is missing stays last in either direction.
  const announcement = document.getElementById("announcement");
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        const numeric = heading.dataset.kind === "number";
        const body = table.tBodies[0];
        const value = (row) => row.cells[column].dataset.value;
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          return direction * (numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true }));
        });
        body.append(...rows);
        headings.forEach((other) => other.setAttribute("aria-sort", "none"));
        heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
        announcement.textContent = `Sorted by ${heading.textContent}, ${direction > 0 ? "ascending" : "descending"}`;
      });
    });
  }
})();
