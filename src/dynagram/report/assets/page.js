// What a page does by itself: charts that fit their column, tables that sort, code to copy,
// light and dark. Nothing is fetched and nothing is evaluated.
const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

// --- charts ---------------------------------------------------------------------------------
const AXES = 96;  // pixels that labels and titles of a vertical axis take beside a panel
const CHARACTER = 6.6;

const wrapped = (text, width) => {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    const last = lines[lines.length - 1];
    if (last && (last.length + word.length) * CHARACTER > width) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
};

const fitLegends = (part, width) => {
  if (Array.isArray(part)) return part.forEach((entry) => fitLegends(entry, width));
  if (!part || typeof part !== "object") return;
  if (part.legend && part.legend.orient === "bottom") {
    const names = (part.scale && part.scale.domain) || [];
    const longest = Math.max(8, ...names.map((name) => String(name).length));
    const columns = Math.max(1, Math.floor(width / (longest * CHARACTER + 48)));
    part.legend.columns = Math.min(part.legend.columns || names.length || 4, columns);
    part.legend.labelLimit = width - 60;
  }
  for (const [key, value] of Object.entries(part)) if (key !== "values") fitLegends(value, width);
};

const fitTitle = (part, width) => {
  if (typeof part.title === "string" && (part.mark || part.layer)) {
    part.title = {text: wrapped(part.title, width), anchor: "start", limit: width};
  }
};

// A copy of a specification that is as wide as its column; panels stack where they do not fit.
const fitted = (specification, width, inner = false) => {
  const part = inner ? specification : structuredClone(specification);
  const list = part.hconcat || part.vconcat || part.concat;
  if (!list) {
    part.width = Math.max(150, inner ? width - AXES : width);
    if (!inner) part.autosize = {type: "fit-x", contains: "padding"};
    if (part.height > 60) part.height = Math.min(part.height, Math.max(190, 0.8 * width));
    fitTitle(part, part.width);
    if (!inner) fitLegends(part, width);
    return part;
  }
  let columns = part.hconcat ? list.length : part.vconcat ? 1 : part.columns || list.length;
  while (columns > 1 && width / columns < 280) columns = Math.ceil(columns / 2);
  const gap = 24;
  const share = (width - gap * (columns - 1)) / columns;
  list.forEach((child) => fitted(child, share, true));
  if (!part.vconcat) {
    delete part.hconcat;
    part.concat = list;
    part.columns = columns;
    part.spacing = gap;
  }
  if (!inner) fitLegends(part, width);
  return part;
};

const draw = () => {
  if (!window.vegaEmbed || !report.charts) return Promise.resolve();
  const light = root.dataset.printing || !isDark();
  const config = structuredClone(light ? report.light : report.dark);
  config.mark = {tooltip: true};
  return Promise.all(report.charts.map((chart, index) => {
    const place = document.getElementById(`chart-${index + 1}`);
    const width = Math.floor(place.clientWidth);
    place.dataset.width = width;
    return vegaEmbed(place, fitted(chart, width), {
      config,
      renderer: "svg",
      ast: true,  // expressions are interpreted: the policy of the page forbids to compile them
      tooltip: {theme: light ? "light" : "dark"},
      actions: {export: true, source: false, compiled: false, editor: false},
    }).then((made) => {
      const drawing = place.querySelector("svg");
      if (drawing && place.dataset.title) {
        drawing.setAttribute("role", "img");
        drawing.setAttribute("aria-label", place.dataset.title);
      }
      return made;
    });
  }));
};

let later = 0;
const redraw = () => { clearTimeout(later); later = setTimeout(draw, 150); };
let seen = window.innerWidth;
addEventListener("resize", () => {
  if (window.innerWidth !== seen) { seen = window.innerWidth; redraw(); }
});
prefersDark.addEventListener("change", redraw);
addEventListener("beforeprint", () => { root.dataset.printing = "1"; draw(); });
addEventListener("afterprint", () => { delete root.dataset.printing; redraw(); });

// --- tables that sort -----------------------------------------------------------------------
const numberIn = (text) => {
  const plain = text.replace(/\u2212/g, "-").replace(/\u221e/g, "1e999").replace(/\s/g, " ");
  const match = plain.match(/[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
  return match ? Number(match[0]) : NaN;
};

const sortBy = (table, column) => {
  const head = table.tHead.rows[0].cells[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const numeric = [...texts.values()].every((text) => !text || text === "–" || !isNaN(numberIn(text)));
  rows.sort((a, b) => {
    const [x, y] = [texts.get(a), texts.get(b)];
    if (!numeric) return x.localeCompare(y);
    const [p, q] = [numberIn(x), numberIn(y)];
    if (isNaN(p) || isNaN(q)) return isNaN(p) - isNaN(q);
    return p - q;
  });
  if (down) rows.reverse();
  table.tBodies[0].append(...rows);
};

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    button.title = "Sort by this column";
    button.addEventListener("click", () => sortBy(table, column));
    cell.replaceChildren(button);
  });
}

// --- code to copy ---------------------------------------------------------------------------
const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // pages opened from disk may not reach the clipboard otherwise
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

for (const block of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copyText(block.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

// --- light and dark -------------------------------------------------------------------------
const themeButton = document.querySelector(".theme");
if (themeButton) {
  const show = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
    draw();
  });
  prefersDark.addEventListener("change", show);
  show();
}

draw().then(() => { root.dataset.ready = "1"; });
