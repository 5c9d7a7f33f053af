// Draws the charts in the theme of the system, and shows of them and the tables what is chosen.
const { specs, themes } = JSON.parse(document.getElementById("report").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const views = new Map();

function chosen() {
  return document.querySelector("input[name=domain]:checked")?.value ?? "";
}

async function draw() {
  const theme = dark.matches ? "dark" : "light";
  const legend = { ...themes[theme].legend, columns: window.innerWidth < 600 ? 2 : 4 };
  const config = { ...themes[theme], legend };
  for (const [name, spec] of Object.entries(specs)) {
    views.get(name)?.finalize();
    // Errors alone: that a chart has no row of the chosen domain is none.
    const options = { config, renderer: "svg", actions: false, tooltip: { theme }, logLevel: 1 };
    const drawn = await vegaEmbed(`#${name}`, spec, options);
    views.set(name, drawn);
    await drawn.view.signal("chosen", chosen()).runAsync();
  }
  document.body.dataset.drawn = theme;
}

async function choose() {
  const domain = chosen();
  for (const row of document.querySelectorAll("tr[data-domain]")) {
    const shown = domain ? row.dataset.domain === domain : !row.closest(".traces") || "ofAll" in row.dataset;
    row.hidden = !shown;
  }
  await Promise.all([...views.values()].map(({ view }) => view.signal("chosen", domain).runAsync()));
  document.body.dataset.chosen = domain;
}

document.getElementById("chosen")?.addEventListener("change", choose);
dark.addEventListener("change", draw);
draw().then(choose);
