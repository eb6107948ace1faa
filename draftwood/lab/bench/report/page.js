"use strict";
// Sorts tables and chooses excerpts; the page is complete without it.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // A click on a heading sorts by it, a second one the other way; unknown figures stay last.
  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      const numeric = head.dataset.kind === "number";
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const falling = now ? now === "ascending" : numeric;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const key = (row) => (numeric ? row.cells[column].dataset.key : row.cells[column].textContent);
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
          const rising = numeric ? x - y : x.localeCompare(y);
          return falling ? -rising : rising;
        };
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  // One excerpt is shown, or two beside each other.
  const chooser = document.getElementById("chooser");
  if (!chooser) return;
  const excerpts = all(".excerpt");
  const [prompt, method, beside] = all("select", chooser);
  const prompts = new Map(excerpts.map((part) => [part.dataset.prompt, part.dataset.title]));
  const methods = [...new Set(excerpts.map((part) => part.dataset.method))];
  prompt.append(...[...prompts].map(([value, title]) => new Option(title, value)));
  method.append(...methods.map((name) => new Option(name, name)));
  beside.append(new Option("nothing", ""), ...methods.map((name) => new Option(name, name)));
  const choose = () => {
    const shown = excerpts.filter((part) => {
      const { prompt: number, method: name } = part.dataset;
      part.hidden = number !== prompt.value || ![method.value, beside.value].includes(name);
      part.open = !part.hidden;
      part.style.order = name === method.value ? 0 : 1;
      return part.open;
    });
    document.getElementById("excerpts").classList.toggle("pair", shown.length > 1);
  };
  chooser.hidden = false;
  chooser.addEventListener("change", choose);
  // Plain decoding has no tree to show.
  method.value = (excerpts.find((part) => part.querySelector(".tree")) || excerpts[0]).dataset.method;
  choose();
})();
