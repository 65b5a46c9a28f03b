"use strict";
// The question in the address and in the controls, and where its answers go.

const {settings: SETTINGS, models: MODELS, clusters: CLUSTERS} = CATALOGUE;
const CONTROLS = Object.fromEntries(SETTINGS.controls.map((control) => [control.name, control]));
const TASK_FIELDS = ["global_batch", "sequence", "precision"];
const STRATEGY_FIELDS = Object.keys(SETTINGS.strategy);
const NAMES = {model: MODELS, cluster: CLUSTERS, stack: CATALOGUE.stacks, engine: CATALOGUE.engines};
const SECTIONS = ["#time", "#memory", "#best", "#roofline", "#front"];
const at = (selector) => document.querySelector(selector);

let values = {...SETTINGS.first};
const inputs = {};

// ---------------------------------------------------------------------------------- the address
/** A value as an address spells it, in the kind that the first question has it. */
function readValue(name, text) {
  const like = SETTINGS.first[name];
  if (like === undefined) throw new Error(`${name}: no such part of a question`);
  if (NAMES[name] && !Object.hasOwn(NAMES[name], text)) {
    throw new Error(`${name}='${text}': is not in the catalogue`);
  }
  if (typeof like === "number") {
    const number = Number(text);
    if (text.trim() === "" || !Number.isFinite(number)) throw new Error(`${name}='${text}': must be a number`);
    return number;
  }
  if (typeof like !== "boolean") return text;
  if (text !== "true" && text !== "false") throw new Error(`${name}='${text}': must be true or false`);
  return text === "true";
}

/** The question of the address; what is left out is as in the first one, a knob at its default. */
function readAddress() {
  const given = [...new URLSearchParams(location.hash.slice(1))];
  if (given.length === 0) return {...SETTINGS.first};
  const found = {...SETTINGS.first, ...SETTINGS.strategy};
  for (const [name, text] of given) found[name] = readValue(name, text);
  return found;
}

function writeAddress() {
  const spelled = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (!(name in SETTINGS.strategy) || value !== SETTINGS.strategy[name]) spelled.set(name, value);
  }
  history.replaceState(null, "", `#${spelled}`);
}

// --------------------------------------------------------------------------------- the controls
function optionsOf(control) {
  if (control.kind !== "catalogue") return control.values.map((value) => [value, String(value)]);
  const entries = Object.entries(NAMES[control.name]);
  return entries.map(([name, entry]) => [name, typeof entry === "string" ? entry : entry.title]);
}

function makeInput(control) {
  const id = `control-${control.name}`;
  const label = element("label", {for: id, title: control.meaning}, control.name.replaceAll("_", " "));
  let input;
  if (control.kind === "number") {
    input = element("input", {id, type: "number", min: control.low, max: control.high, step: 1, required: ""});
  } else {
    input = element("select", {id});
    for (const [value, text] of optionsOf(control)) input.append(element("option", {value}, text));
  }
  input.title = control.meaning;
  input.addEventListener(control.kind === "number" ? "input" : "change", () => {
    if (!input.checkValidity() || input.value === "") return;
    turn({[control.name]: readValue(control.name, input.value)});
  });
  inputs[control.name] = input;
  return element("div", {class: control.kind === "catalogue" ? "row name" : "row"}, label, input);
}

function makeControls() {
  const groups = [...new Set(SETTINGS.controls.map((control) => control.group))];
  at("#controls").replaceChildren(...groups.map((group) => {
    const own = SETTINGS.controls.filter((control) => control.group === group);
    const name = group[0].toUpperCase() + group.slice(1);
    return element("fieldset", {}, element("legend", {}, name), ...own.map(makeInput));
  }));
  at("#controls").addEventListener("submit", (event) => event.preventDefault());
}

function showControls() {
  for (const [name, input] of Object.entries(inputs)) {
    const text = String(values[name]);
    if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === text)) {
      input.append(element("option", {value: text}, text));
    }
    if (input.value !== text) input.value = text;
  }
  inputs.ep.disabled = !MODELS[values.model].shape.experts && values.ep === 1;
  inputs.source_tokens.disabled = !readsText();
}

// ---------------------------------------------------------------------------------- the question
function place() {
  const model = MODELS[values.model];
  const cluster = CLUSTERS[values.cluster];
  return {model: model.shape, vision: model.vision ?? null, cluster: cluster.core, nodes: values.nodes};
}

function asked(what) {
  const cluster = CLUSTERS[values.cluster];
  return {
    ...what,
    ...place(),
    stack: CATALOGUE.stack_records[cluster.stacks[values.stack]],
    task: Object.fromEntries(TASK_FIELDS.map((name) => [name, values[name]])),
  };
}

function askedRanking() {
  return asked({ask: "search", space: SETTINGS.space, top: SETTINGS.top, headroom: SETTINGS.headroom});
}

/** What the serving engine runs on this accelerator; a sentence where it cannot. */
function servingKernels() {
  const entry = CATALOGUE.kernels[CLUSTERS[values.cluster].kernels][values.engine];
  const weights = entry.weights[values.weights];
  if (typeof weights === "string") throw new Error(weights);
  const attention = entry.attention[MODELS[values.model].attention];
  const sets = [weights.fields, attention, weights.caches[values.kv_cache]];
  const {encoder_layers, mixers} = MODELS[values.model].shape;
  // Layers X attend to an image that a tower reads.
  if (encoder_layers || (mixers ?? "").includes("X")) sets.push(entry.encoder);
  const fields = Object.assign({}, ...sets.map((number) => CATALOGUE.kernel_sets[number]));
  return Object.fromEntries(
    Object.entries(fields).map(([name, number]) => [name, CATALOGUE.kernel_values[number]]));
}

/** Whether a model's encoder reads a text, whose length is part of the question. */
function readsText() {
  const {encoder_layers: layers, encoder_positions: positions} = MODELS[values.model].shape;
  return Boolean(layers) && !positions;
}

function askedFront() {
  const engine = CATALOGUE.engines[values.engine];
  const mix = {input_tokens: values.input_tokens, output_tokens: values.output_tokens};
  if (readsText()) mix.source_tokens = values.source_tokens;
  return {
    ask: "front",
    ...place(),
    engine: engine.core,
    kernels: servingKernels(),
    mix,
    imbalance: SETTINGS.imbalance,
    max_accelerators: values.instance_accelerators,
    max_batched_tokens: engine.max_batched_tokens,
    per_octave: SETTINGS.per_octave,
  };
}

function ownStrategy() {
  return Object.fromEntries(STRATEGY_FIELDS.map((name) => [name, values[name]]));
}

// ----------------------------------------------------------------------------------- the answers
function facts(pairs) {
  return element("dl", {class: "facts"}, ...pairs.map(([name, text]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, text))));
}

function memoryFlag(estimate) {
  const {memory_bytes: used, memory_capacity_bytes: capacity} = estimate;
  if (used > capacity) return element("span", {class: "flag too-much"}, `${sizeText(used - capacity)} too much`);
  if (used > (1 - SETTINGS.headroom) * capacity) {
    return element("span", {class: "flag tight"}, `tight: ${sizeText(capacity - used)} free`);
  }
  return "";
}

function showHeadline(estimate, runs) {
  const cluster = CLUSTERS[values.cluster];
  const count = (values.nodes * cluster.node_accelerators).toLocaleString("en-US");
  const where = element("p", {class: "verdict"}, `${values.model} on ${count} × ${cluster.accelerator}`);
  const box = element("div", {class: estimate.verdict === "ok" ? "answer" : "answer too-much"}, where);
  if (runs) {
    box.append(element("div", {class: "step", id: "step"}, `${timeText(estimate.step_time_s)} a step`));
  }
  if (estimate.verdict !== "ok") {
    const flag = element("span", {class: "flag too-much"}, estimate.verdict.replaceAll("_", " "));
    box.append(element("p", {class: "verdict"}, flag, ` ${SETTINGS.reasons[estimate.verdict]}`));
  }
  if (runs) {
    const pairs = [
      ["MFU", percentText(estimate.mfu_fraction)],
      ["tokens/s", countText(estimate.tokens_per_s)],
      ["memory", `${sizeText(estimate.memory_bytes)} of ${sizeText(estimate.memory_capacity_bytes)}`],
      ["hidden communication", timeText(estimate.hidden_s)],
      ["power per accelerator", `${Math.round(estimate.power_w).toLocaleString("en-US")} W`],
      ["energy a step", `${countText(estimate.energy_j)}J`],
      ["dp", String(estimate.dp)],
      ["micro-batches", String(estimate.micro_batches)],
    ];
    if (cluster.priced) pairs.splice(6, 0, ["cost a step", moneyText(estimate.cost_usd)]);
    box.append(facts(pairs));
  }
  at("#headline").replaceChildren(box);
}

function showAnswer({estimate, roofline}) {
  const runs = roofline !== undefined;
  showHeadline(estimate, runs);
  for (const section of ["#time", "#memory", "#roofline"]) at(section).hidden = !runs;
  if (!runs) return;
  drawParts(at("#time"), SETTINGS.times, estimate, estimate.step_time_s, timeText);
  const {memory_bytes: used, memory_capacity_bytes: capacity} = estimate;
  drawParts(at("#memory"), SETTINGS.kinds, estimate, Math.max(used, capacity), sizeText, capacity);
  const filled = `Memory of the fullest accelerator: ${sizeText(used)} of ${sizeText(capacity)} `;
  at("#memory h2").replaceChildren(filled, memoryFlag(estimate));
  drawRoofline(at("#roofline"), roofline, SETTINGS.colours);
}

const RANKED = ["tp", "cp", "pp", "vpp", "ep", "micro_batch", "sharding", "recompute"];
const isWord = (name) => typeof SETTINGS.strategy[name] === "string";
const cell = (tag, name, text) => element(tag, isWord(name) ? {class: "word"} : {}, text);

function bestRow({strategy, estimate}) {
  const same = STRATEGY_FIELDS.every((name) => name === "dp" || strategy[name] === values[name]);
  const take = element("button", {type: "button"}, "take");
  take.addEventListener("click", () => turn({...strategy, dp: 0}));
  return element("tr", same ? {class: "present"} : {}, element("td", {class: "word"}, take),
    element("td", {}, timeText(estimate.step_time_s)), element("td", {}, percentText(estimate.mfu_fraction)),
    element("td", {}, sizeText(estimate.memory_bytes)), element("td", {}, String(estimate.dp)),
    ...RANKED.map((name) => cell("td", name, String(strategy[name]))));
}

function showBest({best, strategies}, took_ms) {
  const section = at("#best");
  section.hidden = false;
  const lists = RANKED.map((name) => `${name} ${SETTINGS.space[name].join(" ")}`);
  const free = `at least ${percentText(SETTINGS.headroom)} of the memory free`;
  const count = strategies.toLocaleString("en-US");
  const found = best.length === 0
    ? `None of ${count} strategies leaves ${free}`
    : `The fastest of ${count} strategies that leave ${free}, found in ${took_ms.toFixed(0)} ms`;
  section.querySelector(".note").textContent =
    `${found}. Looked at: ${lists.join("; ")}; other knobs at their defaults.`;
  const answers = ["step", "MFU", "memory", "dp"].map((name) => element("th", {}, name));
  const head = element("tr", {}, element("th", {class: "word"}, ""), ...answers,
    ...RANKED.map((name) => cell("th", name, name.replaceAll("_", " "))));
  section.querySelector(".wide").replaceChildren(...(best.length === 0 ? [] :
    [element("table", {}, element("thead", {}, head), element("tbody", {}, ...best.map(bestRow)))]));
}

function showFront({front, plans, layouts}, took_ms) {
  const section = at("#front");
  section.hidden = false;
  const what = `${values.model} by ${CATALOGUE.engines[values.engine].title}, ${values.weights} weights`;
  const count = `${layouts} layouts, ${plans.toLocaleString("en-US")} plans`;
  const none = "no layout of so few accelerators leaves room for a sequence";
  section.querySelector(".note").textContent = front.length === 0
    ? `${what}: ${none} (${count}).`
    : `${what}: plans that no other beats in both, with sequences kept running, of ${count}, ` +
      `found in ${took_ms.toFixed(0)} ms.`;
  section.querySelector(".drawing").replaceChildren();
  section.querySelector(".wide").replaceChildren(...(front.length === 0 ? [] : [frontTable(front)]));
  if (front.length > 0) drawFront(section, front, SETTINGS.colours);
}

function refuseFront(sentence) {
  const section = at("#front");
  section.hidden = false;
  section.querySelector(".note").textContent = sentence;
  for (const part of [".drawing", ".wide"]) section.querySelector(part).replaceChildren();
}

// -------------------------------------------------------------------------------------- the turns
let ask = null;
let rank = null;
let turns = 0;
let shown = null;
let ranked = null;
let served = null;
let warm = false;

/** The engine's sentence in place of an answer, which would be one to another question. */
function refuse(error) {
  at("#refusal").hidden = error === null;
  at("#refusal").textContent = error === null ? "" : error.message;
  at("#headline").hidden = error !== null;
  if (error === null) return;
  shown = null;
  for (const section of SECTIONS) at(section).hidden = true;
}

async function answer() {
  turns += 1;
  const turn = turns;
  const start = performance.now();
  try {
    const found = await ask(asked({ask: "estimate", strategy: ownStrategy()}));
    if (turn !== turns) return;
    shown = found;
    refuse(null);
    showAnswer(found);
  } catch (error) {
    if (turn === turns) refuse(error);
    return;
  } finally {
    document.body.dataset.answered = String(turn);
    document.body.dataset.took = String(performance.now() - start);
  }
  await showRanking(turn);
  await showServing(turn);
  if (turn === turns) await warmUp();
}

/** Questions about a model of another kind, once and while none waits: code that has run before is
 * compiled anew by browsers, faster, and experts run code that the first model may not have. */
async function warmUp() {
  if (warm) return;
  warm = true;
  const present = values;
  const routed = MODELS[present.model].shape.experts > 0;
  const other = Object.keys(MODELS).find((name) => (MODELS[name].shape.experts > 0) !== routed);
  values = {...present, model: other};
  try {
    const questions = [askedRanking(), askedFront()];
    values = present;
    for (const question of questions) await rank(question);
  } catch {
    values = present; // nothing of it is wanted
  }
  document.body.dataset.warm = "true";
}

/** The ranking of a question does not depend on the strategy: it is asked once, by the last turn. */
async function showRanking(turn) {
  const question = askedRanking();
  const key = JSON.stringify(question);
  if (ranked === null || ranked.key !== key) {
    await new Promise((later) => setTimeout(later, 0));
    if (turn !== turns) return;
    const start = performance.now();
    const found = await rank(question);
    ranked = {key, found, took_ms: performance.now() - start};
  }
  if (turn === turns) showBest(ranked.found, ranked.took_ms);
}

/** Nor does the front of a serving engine depend on what is trained. */
async function showServing(turn) {
  if (turn !== turns) return;
  let key = null;
  try {
    const question = askedFront();
    key = JSON.stringify(question);
    if (served === null || served.key !== key) {
      const start = performance.now();
      const found = await rank(question);
      served = {key, found, took_ms: performance.now() - start};
    }
    if (turn === turns) showFront(served.found, served.took_ms);
  } catch (error) {
    if (turn === turns) refuseFront(error.message);
  } finally {
    document.body.dataset.served = String(turn);
  }
}

function turn(changes) {
  values = {...values, ...changes};
  writeAddress();
  showControls();
  answer();
}

function follow() {
  try {
    values = readAddress();
    refuse(null);
  } catch (error) {
    refuse(error);
    document.body.dataset.answered = "refused";
    return;
  }
  showControls();
  answer();
}

async function begin() {
  makeControls();
  at("#origin").textContent =
    `scalemodel ${CATALOGUE.version}. Formulas, sources and measured errors: the Python package.`;
  const module = await compileEngine();
  ask = makeEngine(module);
  try {
    rank = makeWorker(module);
  } catch {
    rank = makeEngine(module); // a browser without workers here
  }
  addEventListener("hashchange", follow);
  addEventListener("resize", () => {
    if (shown?.roofline) drawRoofline(at("#roofline"), shown.roofline, SETTINGS.colours);
    if (served?.found.front.length > 0 && !at("#front").hidden) {
      drawFront(at("#front"), served.found.front, SETTINGS.colours);
    }
  });
  follow();
}

begin().catch((error) => refuse(error));
