"use strict";
// Bars and the roofline. Every number comes from the engine; here it only finds its place.

/** A stacked bar of an estimate's columns up to `whole`, and its parts named below. */
function drawParts(section, parts, estimate, whole, text, capacity = null) {
  const shown = parts.filter((part) => estimate[part.column] > 0);
  const bar = section.querySelector(".bar");
  bar.replaceChildren(
    ...shown.map((part) => {
      const value = estimate[part.column];
      const label = `${part.name}: ${text(value)}`;
      const piece = element("span", {title: label});
      piece.style.width = `${(100 * value) / whole}%`;
      piece.style.background = part.colour;
      return piece;
    }),
  );
  bar.setAttribute("role", "img");
  const named = shown.map((part) => `${part.name} ${text(estimate[part.column])}`);
  bar.setAttribute("aria-label", named.join(", "));
  if (capacity !== null) {
    const mark = element("span", {class: "capacity", title: `capacity: ${text(capacity)}`});
    mark.style.left = `calc(${(100 * capacity) / whole}% - 1px)`;
    bar.append(mark);
  }
  const of = capacity ?? whole;
  section.querySelector(".parts").replaceChildren(
    ...shown.map((part) => {
      const colour = element("i");
      colour.style.background = part.colour;
      const value = estimate[part.column];
      return element("div", {title: part.meaning}, colour, element("span", {}, part.name),
        element("b", {}, text(value)), element("em", {}, percentText(value / of)));
    }),
  );
}

function svgElement(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Powers of ten from one at most `low` to one at least `high`; of few decades also 2 and 5. */
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const steps = last - first > 2 ? [1] : [1, 2, 5];
  const ticks = Array.from({length: last - first}, (_, i) => steps.map((step) => step * 10 ** (first + i)));
  return [...ticks.flat(), 10 ** last];
}

const tickText = (value) => countText(value).replace(/\.0+(?= |$)/, "");

/** An empty drawing with a grid at two lists of ticks, and where a value of each lies in it. */
function logAxes(section, across, up, across_label, up_label, label) {
  const width = Math.max(280, Math.min(760, section.clientWidth || 760));
  const height = 320;
  const edge = {left: 64, right: 26, top: 12, bottom: 42};
  const place = (value, ticks, from, to) => {
    const low = Math.log10(ticks[0]);
    return from + ((Math.log10(value) - low) / (Math.log10(ticks.at(-1)) - low)) * (to - from);
  };
  const x = (value) => place(value, across, edge.left, width - edge.right);
  const y = (value) => place(value, up, height - edge.bottom, edge.top);
  const svg = svgElement("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label});
  for (const tick of across) {
    const [across_at, bottom] = [x(tick), height - edge.bottom];
    svg.append(
      svgElement("line", {class: "grid", x1: across_at, x2: across_at, y1: edge.top, y2: bottom}),
      svgElement("text", {x: across_at, y: bottom + 16, "text-anchor": "middle"}, tickText(tick)));
  }
  for (const tick of up) {
    const [right, up_at] = [width - edge.right, y(tick)];
    svg.append(
      svgElement("line", {class: "grid", x1: edge.left, x2: right, y1: up_at, y2: up_at}),
      svgElement("text", {x: edge.left - 6, y: up_at + 4, "text-anchor": "end"}, tickText(tick)));
  }
  svg.append(
    svgElement("text", {x: (edge.left + width - edge.right) / 2, y: height - 6,
      "text-anchor": "middle"}, across_label),
    svgElement("text", {x: 12, y: height / 2, "text-anchor": "middle",
      transform: `rotate(-90 12 ${height / 2})`}, up_label));
  return {svg, x, y};
}

/** Log-log: arithmetic intensity to the right, rate upwards. */
function drawRoofline(section, roofline, colours) {
  const room = section.querySelector(".drawing");
  const {gemms, ridge_flop_per_byte: ridge, peak_flop_per_s: peak} = roofline;
  section.hidden = gemms.length === 0 || !(peak > 0);
  if (section.hidden) return;
  const across = logTicks(Math.min(ridge / 4, ...gemms.map((g) => g.flop_per_byte)),
    Math.max(ridge * 4, ...gemms.map((g) => g.flop_per_byte)));
  const up = logTicks(Math.min(peak / 8, ...gemms.map((g) => g.flop_per_s)), peak);
  const {svg, x, y} = logAxes(section, across, up, "FLOP per byte of operands", "FLOP/s",
    `Roofline: ${gemms.length} GEMMs below ${countText(peak)}FLOP/s`);
  // The slanted roof starts where it enters the drawing.
  const start = Math.max(across[0], (ridge * up[0]) / peak);
  const roof = [[start, (peak * start) / ridge], [ridge, peak], [across.at(-1), peak]];
  const points = roof.map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
  svg.append(svgElement("polyline", {class: "roof", points}));
  const kinds = [...new Set(gemms.map((gemm) => gemm.kind))];
  for (const gemm of gemms) {
    const shape = `${gemm.batch > 1 ? `${gemm.batch} × ` : ""}${gemm.m} × ${gemm.n} × ${gemm.k}`;
    const told = [`${gemm.kind}: ${gemm.operator}`, shape, timeText(gemm.forward_s),
      `${countText(gemm.flop_per_s)}FLOP/s`].join(", ");
    const fill = colours[kinds.indexOf(gemm.kind) % colours.length];
    svg.append(svgElement("circle", {class: "dot", cx: x(gemm.flop_per_byte),
      cy: y(gemm.flop_per_s), r: 5.5, fill}, svgElement("title", {}, told)));
  }
  const keys = kinds.map((kind, i) => {
    const dot = element("i");
    dot.style.background = colours[i % colours.length];
    return element("span", {}, dot, kind);
  });
  const memory = countText(roofline.memory_bandwidth_bytes_per_s);
  keys.push(element("span", {}, `peak ${countText(peak)}FLOP/s, memory ${memory}B/s`));
  room.replaceChildren(svg, element("div", {class: "keys"}, ...keys));
}
