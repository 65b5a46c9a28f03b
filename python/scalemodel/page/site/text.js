"use strict";
// Quantities as the package writes them (scalemodel.base.text).

function threeDigits(number) {
  const size = Math.abs(number);
  if (size >= 99.95) return Math.round(number).toLocaleString("en-US");
  return number.toFixed(size >= 9.995 ? 1 : 2);
}

function scaled(value, units, last) {
  const found = units.find(([, factor]) => Math.abs(value) >= factor);
  return found ? `${threeDigits(value / found[1])} ${found[0]}` : last(value);
}

function timeText(seconds) {
  if (seconds === 0) return "0 s";
  const units = [["s", 1], ["ms", 1e-3], ["us", 1e-6]];
  return scaled(seconds, units, (value) => `${threeDigits(value / 1e-9)} ns`);
}

function sizeText(bytes) {
  const units = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  return scaled(bytes, units, (value) => `${value.toFixed(0)} B`);
}

function countText(number) {
  const units = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
  return scaled(number, units, threeDigits);
}

function percentText(fraction) {
  return `${(100 * fraction).toFixed(1)} %`;
}

function moneyText(usd) {
  if (usd >= 1000) return `${Math.round(usd).toLocaleString("en-US")} USD`;
  return `${usd >= 0.1 ? usd.toFixed(2) : Number(usd.toPrecision(2))} USD`;
}

/** An element with attributes and children; texts are never read as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
