"use strict";
// What throughput of a serving engine trades against the speed of a user's answer.

const FRONT_ROWS = 8;
const DEGREES = ["tp", "pp", "ep", "dp", "cp"];

function layoutText(layout) {
  const named = DEGREES.filter((name) => layout[name] > 1).map((name) => `${name}${layout[name]}`);
  return named.join(" ") || "tp1";
}

/** The ticks around all values, one decade at the least. */
function ticksAround(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return logTicks(low, Math.max(high, low * 1.01));
}

/** Log-log: tokens per second of a user to the right, of an accelerator upwards. */
function drawFront(section, front, colours) {
  const across = ticksAround(front.map((plan) => plan.tokens_per_s_per_user));
  const up = ticksAround(front.map((plan) => plan.output_tokens_per_s_per_accelerator));
  const {svg, x, y} = logAxes(section, across, up, "output tokens/s of a user",
    "output tokens/s of an accelerator", `Serving front of ${front.length} plans`);
  const spots = front.map((plan) =>
    [x(plan.tokens_per_s_per_user), y(plan.output_tokens_per_s_per_accelerator)]);
  svg.append(svgElement("polyline", {class: "front", points: spots.map((spot) => spot.join(",")).join(" ")}));
  const layouts = [...new Set(front.map((plan) => layoutText(plan.layout)))];
  front.forEach((plan, i) => {
    const layout = layoutText(plan.layout);
    const told = [layout, `${countText(plan.state.concurrency)} running`,
      `${countText(plan.output_tokens_per_s_per_accelerator)} tokens/s an accelerator`,
      `${timeText(plan.state.tpot_s)} between tokens`].join(", ");
    const fill = colours[layouts.indexOf(layout) % colours.length];
    svg.append(svgElement("circle", {class: "dot", cx: spots[i][0], cy: spots[i][1], r: 5, fill},
      svgElement("title", {}, told)));
  });
  const keys = layouts.map((layout, i) => {
    const dot = element("i");
    dot.style.background = colours[i % colours.length];
    return element("span", {}, dot, layout);
  });
  section.querySelector(".drawing").replaceChildren(svg, element("div", {class: "keys"}, ...keys));
}

/** Some plans of a front from its one end to the other. */
function frontRows(front) {
  const count = Math.min(FRONT_ROWS, front.length);
  return Array.from({length: count}, (_, i) =>
    front[Math.round((i * (front.length - 1)) / Math.max(1, count - 1))]);
}

function frontTable(front) {
  const head = ["layout", "running", "tokens/s a user", "tokens/s an accelerator",
    "between tokens", "first token"];
  const cell = (text, i, tag) => element(tag, i === 0 ? {class: "word"} : {}, text);
  const row = (plan) => [layoutText(plan.layout), countText(plan.state.concurrency),
    countText(plan.tokens_per_s_per_user), countText(plan.output_tokens_per_s_per_accelerator),
    timeText(plan.state.tpot_s), timeText(plan.state.ttft_s)];
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text, i) => cell(text, i, "th")))),
    element("tbody", {}, ...frontRows(front).map((plan) =>
      element("tr", {}, ...row(plan).map((text, i) => cell(text, i, "td"))))));
}
