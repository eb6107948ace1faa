// The figures of the server, asked for each second.

import { KeyNeeded, stats } from "./api.js";
import { number } from "./answer.js";

const PERIOD = 1000; // milliseconds
const place = (id) => document.getElementById(id);

let before = null;
let timer = 0;

// Asks now and from then on each second, until a key is needed.
export async function watch({ onServed, onKeyNeeded }) {
  clearTimeout(timer);
  try {
    const found = { ...(await stats()), time: performance.now() };
    onServed(found);
    show(found);
    place("figures").classList.remove("stale");
  } catch (error) {
    place("figures").classList.add("stale");
    if (error instanceof KeyNeeded) return onKeyNeeded();
  }
  timer = setTimeout(watch, PERIOD, { onServed, onKeyNeeded });
}

function show(found) {
  place("running").textContent = found.running;
  place("waiting").textContent = found.waiting;
  place("cache").textContent = `${number(100 * found.cache_usage)} %`;
  if (found.price !== null) {
    place("price-figure").hidden = false;
    place("price").textContent = number(found.price, 2);
  }
  if (found.prefix_hits) {
    place("prefix-figure").hidden = false;
    place("prefix").textContent = `${number((100 * found.prefix_hits) / found.prefix_queries)} %`;
  }
  // Of the steps since the last time; without any, the figures of steps stay as they were.
  const since = (name) => found[name] - (before?.[name] ?? 0);
  const steps = since("request_steps");
  if (steps > 0) {
    place("acceptance").textContent = number(since("committed_tokens") / steps, 2);
    place("nodes").textContent = number(since("draft_tokens") / steps);
  }
  if (before) {
    const seconds = (found.time - before.time) / 1000;
    place("rate").textContent = number(since("committed_tokens") / seconds);
  }
  before = found;
}
