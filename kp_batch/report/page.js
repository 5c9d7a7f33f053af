// Draws the charts in the system's theme, and shows the chosen domain in charts and tables.
const { shown, themes } = JSON.parse(document.getElementById("report").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const views = new Map();
let working = Promise.resolve();

function chosen() {
  return document.querySelector("input[name=domain]:checked")?.value ?? "";
}

// Vega's own interpreter (ast) needs no eval, which the page's policy forbids.
async function drawOne(name, theme) {
  const legend = { ...themes[theme].legend, columns: window.innerWidth < 600 ? 2 : 4 };
  const config = { ...themes[theme], legend };
  const options = { ast: true, config, renderer: "svg", actions: false, tooltip: { theme } };
  views.get(name)?.finalize();
  views.set(name, await vegaEmbed(`#${name}`, shown[name].spec, options));
}

async function chooseOne(name, domain) {
  const chart = document.getElementById(name);
  const there = !domain || shown[name].domains.includes(domain);
  chart.hidden = !there;
  chart.nextElementSibling.hidden = there;
  if (there) await views.get(name)?.view.signal("chosen", domain).runAsync();
}

function filterTables(domain) {
  for (const row of document.querySelectorAll("tr[data-domain]")) {
    const overall = !row.closest(".traces, .outcomes") || "overall" in row.dataset;
    row.hidden = domain ? row.dataset.domain !== domain : !overall;
  }
}

// A chart that fails says so, and the others are still drawn.
function each(work) {
  return Promise.all(Object.keys(shown).map((name) => work(name).catch((error) => {
    console.error(error);
    document.getElementById(name).textContent = "This chart could not be drawn.";
  })));
}

async function draw() {
  const theme = dark.matches ? "dark" : "light";
  await each((name) => drawOne(name, theme));
  await choose();
  document.body.dataset.drawn = theme;
}

async function choose() {
  const domain = chosen();
  filterTables(domain);
  await each((name) => chooseOne(name, domain));
  document.body.dataset.chosen = domain;
}

// One task after the other, however fast somebody clicks.
function next(work) {
  working = working.then(work);
}

document.getElementById("chosen")?.addEventListener("change", () => next(choose));
dark.addEventListener("change", () => next(draw));
next(draw);
