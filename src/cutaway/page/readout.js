// Tells the value under the pointer, and shows a small map of an atlas large. Without it a page is whole all the same.
function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14);
}
function values(text) {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  return Array.from(new Uint16Array(bytes.buffer), half);
}
function named(names, place) {
  return names[place] === String(place) ? names[place] : `${names[place]} (${place})`;
}
function told(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : value.toFixed(3);
}
// What stands in a cell, as `numbers.written` has it.
function written(value, signed) {
  if (Math.abs(value) < 0.005 || value === -Infinity) return "";
  const size = Math.abs(value);
  return (signed && value > 0 ? "+" : "") + value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
for (const root of document.querySelectorAll(".cutaway:not([data-ready])")) {
  root.dataset.ready = "1";
  for (const figure of root.querySelectorAll("figure[data-values]")) {
    const rows = JSON.parse(figure.dataset.rows), columns = JSON.parse(figure.dataset.columns);
    const { left, top, cell, down, across, scale, hint } = figure.dataset;
    const svg = figure.querySelector("svg.map"), caption = figure.querySelector("figcaption");
    let name = figure.dataset.name ?? "", found = values(figure.dataset.values);
    const rest = () => { caption.textContent = hint ? `${name} · ${hint}` : name; };
    rest();
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width;
      const column = Math.floor(((event.clientX - box.left) * zoom - left) / cell);
      const row = Math.floor(((event.clientY - box.top) * zoom - top) / cell);
      if (row < 0 || column < 0 || row >= rows.length || column >= columns.length) return rest();
      const value = told(found[row * columns.length + column]);
      caption.textContent = `${name ? name + " · " : ""}${down} ${named(rows, row)}, ${across} ${named(columns, column)}: ${value}`;
    });
    svg.addEventListener("pointerleave", rest);
    const maps = [...figure.querySelectorAll("[data-place]")], perRow = Number(figure.dataset.perRow);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -perRow, ArrowDown: perRow };
    for (const [place, small] of maps.entries()) {
      const choose = () => {
        name = small.dataset.name;
        found = values(small.dataset.values);
        svg.querySelector("image").setAttribute("href", small.querySelector("image").getAttribute("href"));
        for (const [n, each] of svg.querySelectorAll(".values text").entries()) each.textContent = written(found[n], scale === "signed");
        for (const each of maps) each.setAttribute("aria-pressed", each === small);
        rest();
      };
      small.addEventListener("click", choose);
      small.addEventListener("keydown", (event) => {
        const next = maps[place + steps[event.key]];  // one stop of the tab key, from there by arrows
        if (next) {
          for (const each of maps) each.setAttribute("tabindex", each === next ? 0 : -1);
          next.focus();
        } else if (event.key === "Enter" || event.key === " ") choose();
        else return;
        event.preventDefault();
      });
    }
  }
}
