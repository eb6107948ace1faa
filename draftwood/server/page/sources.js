// The colours of sources, and the legend.

const KNOWN = ["context", "adjacency", "memory", "draft", "eagle3"]; // always the same colours
const OTHERS = 8;

const slots = new Map(KNOWN.map((name, index) => [name, index + 1]));

// The class of a source's colour; when all are taken, the last one is shared.
export function classOf(source) {
  if (!slots.has(source)) slots.set(source, Math.min(slots.size + 1, OTHERS));
  return `source-${slots.get(source)}`;
}

// Shows how many tokens of some runs each source has drafted.
export function showLegend(list, runs) {
  const counts = new Map();
  for (const run of runs) {
    for (const [source, count] of run.bySource) counts.set(source, (counts.get(source) ?? 0) + count);
  }
  const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  list.replaceChildren(
    ...sorted.map(([source, count]) => {
      const item = document.createElement("li");
      const name = document.createElement("span");
      name.className = source === null ? "own" : `source ${classOf(source)}`;
      name.textContent = source ?? "the model's own";
      item.append(name, ` ${count} (${Math.round((100 * count) / all)} %)`);
      return item;
    }),
  );
}
