"use strict";
// How long the page's engine takes for its answers, model by model, in processor time:
//   scalemodel export-page site --engine build/page/engine.wasm
//   node tests/benchmarks/page_answers.js site [CLUSTER,CLUSTER ...] [TRIES] [MODEL,MODEL ...]
// Every model gets an instance of its own that has answered what the page asks by itself: of the
// first model, and of one with experts. What is measured is asked after these; of several tries
// the least counts. The goal is 50 ms for every answer.
//
// On dgx_h100 (node 20, two tries, 2026-12-01, nothing else running):
//   milliseconds                 asked  median     95%   worst  >50  of
//   an estimate                  694     0.4     0.5     0.9     0  flex_olmo_7x7b
//   first ranking                694     3.7    20.3    46.1     0  hy4_preview
//   ranking of another batch     694     7.7    21.4    45.3     0  hy4_preview
//   ranking of other nodes       694     2.0    12.0    32.4     0  deepseek_v3
//   front of 8 accelerators      678     1.6     5.3    11.9     0  laguna_s_2_1
//   front of 16 accelerators     678     1.9     9.9    14.0     0  glm_5_3_flash
//   front of 64 accelerators     678     2.8    30.3    43.0     0  step_3_5_flash
// On the same morning and machine before: 10 first rankings beyond 50 ms (worst 70), 12 of another
// batch (71), 7 fronts of 64 (56). The 47 slowest of these models on dgx_a100, gb200_nvl72,
// mi300x_node and tpu_v5p_pod: one answer of 1,316 takes longer, 51.8 ms.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const GOAL_MS = 50;
const CLUSTERS = "dgx_h100,dgx_a100,gb200_nvl72,mi300x_node,tpu_v5p_pod";

/** The page's own questions and engine, without its document. */
function openPage(folder) {
  const text = (name) => fs.readFileSync(path.join(folder, name), "utf8");
  const page = text("page.js").replace(/^begin\(\)\.catch.*$/m, "");
  const parts = [text("engine.js"), text("engine-code.js"), text("catalogue.js"), page];
  const handed = `globalThis.page = {makeEngine, compileEngine, MODELS, CLUSTERS, SETTINGS,
    question(what, changes) {
      values = {...SETTINGS.first, ...SETTINGS.strategy, ...changes};
      if (what === "search") return askedRanking();
      if (what === "front") return askedFront();
      return asked({ask: "estimate", strategy: ownStrategy()});
    }};`;
  const outside = {document: {}, location: {}, console, performance, URLSearchParams, WebAssembly,
    TextDecoder, TextEncoder, atob};
  const context = vm.createContext(outside);
  vm.runInContext([...parts, handed].join("\n"), context);
  return context.page;
}

/** What is asked of every model, in this order. */
const QUESTIONS = {
  "an estimate": ["estimate", {}],
  "first ranking": ["search", {}],
  "ranking of another batch": ["search", {global_batch: 1088}],
  "ranking of other nodes": ["search", {nodes: 32}],
  "front of 8 accelerators": ["front", {instance_accelerators: 8}],
  "front of 16 accelerators": ["front", {instance_accelerators: 16}],
  "front of 64 accelerators": ["front", {instance_accelerators: 64}],
};

async function spent(ask, question) {
  const start = process.cpuUsage();
  await ask(question);
  const used = process.cpuUsage(start);
  return (used.user + used.system) / 1000;
}

/** Milliseconds by question; those that the page refuses by a sentence are left out. */
async function measured(page, module, model, cluster, tries) {
  const least = {};
  for (let attempt = 0; attempt < tries; ++attempt) {
    const ask = page.makeEngine(module);
    const others = Object.keys(page.MODELS).filter((name) => page.MODELS[name].shape.experts > 0);
    for (const known of [page.SETTINGS.first.model, others[0]]) {
      for (const what of ["search", "front"]) await ask(page.question(what, {model: known}));
    }
    for (const [name, [what, changes]] of Object.entries(QUESTIONS)) {
      try {
        const question = page.question(what, {model, cluster, ...changes});
        least[name] = Math.min(await spent(ask, question), least[name] ?? Infinity);
      } catch {
        // A format that the accelerator cannot multiply: a sentence, at once.
      }
    }
  }
  return least;
}

function report(name, rows) {
  rows.sort((a, b) => a.ms - b.ms);
  const at = (share) => rows[Math.min(rows.length - 1, Math.floor(share * rows.length))].ms.toFixed(1);
  const worst = rows[rows.length - 1];
  const beyond = rows.filter((row) => row.ms > GOAL_MS).length;
  console.log(`${name.padEnd(26)} ${String(rows.length).padStart(5)} ${at(0.5).padStart(7)} ` +
    `${at(0.95).padStart(7)} ${worst.ms.toFixed(1).padStart(7)} ${String(beyond).padStart(5)}  ` +
    `${worst.model} on ${worst.cluster}`);
}

async function main([folder, clusters = CLUSTERS, tries = 2, models]) {
  const page = openPage(folder);
  const module = await page.compileEngine();
  const rows = Object.fromEntries(Object.keys(QUESTIONS).map((name) => [name, []]));
  const asked = models ? models.split(",") : Object.keys(page.MODELS);
  await measured(page, module, asked[0], page.SETTINGS.first.cluster, 1); // compiles
  for (const cluster of clusters.split(",")) {
    for (const model of asked) {
      const least = await measured(page, module, model, cluster, Number(tries));
      for (const [name, ms] of Object.entries(least)) rows[name].push({ms, model, cluster});
    }
  }
  console.log("milliseconds                 asked  median     95%   worst  >50  of");
  for (const [name, found] of Object.entries(rows)) if (found.length > 0) report(name, found);
}

main(process.argv.slice(2));
