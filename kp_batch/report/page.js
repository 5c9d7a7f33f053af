// Shows the chosen domain: its numbers and sentences, its rows, and its charts in the system's theme.
const { themes, specs, panels, everything } = JSON.parse(document.getElementById("report").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const drawn = Object.keys(panels).filter((name) => document.getElementById(name));
const views = new Map();
let working = Promise.resolve();
let last = 0;

function chosen() {
  return document.querySelector("input[name=domain]:checked")?.value ?? everything;
}

function element(tag, content, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...[content].flat());
  return made;
}

// Texts alone are put in, never HTML.
function tableOf({ columns, rows }) {
  const heads = columns.map((name) => element("th", name, { scope: "col" }));
  const lines = rows.map(([first, ...others]) => {
    const cells = others.map((text, place) => {
      const cell = element("td", text);
      cell.dataset.title = columns[place + 1];
      return cell;
    });
    return element("tr", [element("th", first, { scope: "row" }), ...cells]);
  });
  const table = element("table", [
    element("thead", element("tr", heads)),
    element("tbody", lines),
  ]);
  const container = element("div", table, { className: "table" });
  container.style.setProperty("--columns", columns.length);
  return container;
}

function fillTable(details, table) {
  details.querySelector(".table")?.remove();
  if (table && details.open) details.append(tableOf(table));
}

function choosePanel(name, scope) {
  const shown = panels[name][scope];
  const section = document.getElementById(name).closest("section");
  section.hidden = !shown;
  if (!shown) return;
  section.querySelector("figcaption").textContent = shown.caption;
  const details = section.querySelector("details");
  if (details) {
    details.ontoggle = () => fillTable(details, shown.table);
    fillTable(details, shown.table);
  }
}

function choose(scope) {
  const isAll = scope === everything;
  for (const part of document.querySelectorAll("[data-scope]")) {
    part.hidden = part.dataset.scope !== scope;
  }
  for (const row of document.querySelectorAll("tr[data-domain]")) {
    row.hidden = isAll ? !("overall" in row.dataset) : row.dataset.domain !== scope;
  }
  for (const name of document.querySelectorAll(".scope")) name.textContent = isAll ? "" : scope;
  for (const name of drawn) choosePanel(name, scope);
}

// Vega's own interpreter (ast) needs no eval, which the page's policy forbids.
async function draw(name, scope, theme) {
  const shown = panels[name][scope];
  const place = document.getElementById(name);
  if (!shown) return;
  const legend = { ...themes[theme].legend, columns: window.innerWidth < 600 ? 2 : 4 };
  const config = { ...themes[theme], legend };
  const values = shown.rows.map((row) =>
    Object.fromEntries(shown.columns.map((column, at) => [column, row[at]])));
  const spec = { ...specs[shown.spec], data: { name: "rows", values }, description: shown.caption };
  place.style.minHeight = `${place.offsetHeight}px`; // or the page would jump
  views.get(name)?.finalize();
  const options = { ast: true, config, renderer: "svg", actions: false, tooltip: { theme } };
  views.set(name, await vegaEmbed(place, spec, options));
  place.style.minHeight = "";
}

// A chart that fails says so, and the others are still drawn.
async function drawAll(scope, theme) {
  await Promise.all(drawn.map((name) => draw(name, scope, theme).catch((error) => {
    console.error(error);
    document.getElementById(name).textContent = "This chart could not be drawn.";
  })));
  document.body.dataset.drawn = theme;
  document.body.dataset.chosen = scope;
}

// One drawing after the other, and only the last, however fast somebody chooses.
function show() {
  const scope = chosen();
  const mine = ++last;
  choose(scope);
  working = working.then(() =>
    mine === last && drawAll(scope, dark.matches ? "dark" : "light"));
}

document.getElementById("chosen")?.addEventListener("change", () => {
  document.getElementById("said").textContent = `Shown: ${chosen()}`;
  show();
});
dark.addEventListener("change", show);
show();
