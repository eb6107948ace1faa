"use strict";
// Only shows, hides, sorts and moves what the page already holds.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tables: a click on a heading sorts by it, a second one the other way; unknown figures stay last.
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
        const key = (row) => {
          const cell = row.cells[column];
          if (!numeric) return cell.textContent;
          return cell.dataset.key === undefined ? null : Number(cell.dataset.key);
        };
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === null || y === null) return (x === null) - (y === null);
          const rising = numeric ? x - y : x.localeCompare(y);
          return falling ? -rising : rising;
        };
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  // All outputs, or those without loops.
  const variants = document.getElementById("variants");
  const show = () => {
    const chosen = variants.querySelector(":checked").value;
    all(".variant").forEach((part) => (part.hidden = part.dataset.variant !== chosen));
  };
  variants.hidden = false;
  variants.addEventListener("change", show);
  show();

  // Trees: moved and scaled within their frames.
  const live = (viewport) => {
    const svg = viewport.querySelector("svg");
    const [width, height] = [svg.width.baseVal.value, svg.height.baseVal.value];
    viewport.classList.add("live");
    // Small enough to see much of it, large enough to read.
    const start = Math.max(0.7, Math.min(1, viewport.clientWidth / width));
    const room = Math.min(Math.max(height * start, 160), 0.7 * window.innerHeight);
    viewport.style.height = `${room + 2}px`;
    const fit = () => Math.min(1, viewport.clientWidth / width, room / height);
    const most = 8;
    let [scale, x, y] = [1, 0, 0];

    const paint = () => {
      // Some of the picture always stays in the frame.
      const keep = 48;
      x = Math.min(viewport.clientWidth - keep, Math.max(keep - width * scale, x));
      y = Math.min(viewport.clientHeight - keep, Math.max(keep - height * scale, y));
      svg.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
      const larger = height * scale > viewport.clientHeight + 2;
      viewport.classList.toggle("zoomed", larger);
      share.textContent = `${Math.round(100 * scale)} %`;
    };
    const zoom = (factor, left = viewport.clientWidth / 2, top = viewport.clientHeight / 2) => {
      const wanted = Math.min(most, Math.max(Math.min(fit(), 0.25), scale * factor));
      x = left - ((left - x) * wanted) / scale;
      y = top - ((top - y) * wanted) / scale;
      scale = wanted;
      paint();
    };
    const place = (wanted) => {
      [scale, x, y] = [wanted, 0, 0];
      paint();
    };

    const tools = document.createElement("span");
    tools.className = "tools";
    const button = (sign, label, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = sign;
      made.setAttribute("aria-label", label);
      made.addEventListener("click", act);
      tools.append(made, " ");
    };
    button("−", "zoom out", () => zoom(1 / 1.4));
    button("+", "zoom in", () => zoom(1.4));
    button("fit", "show the whole tree", () => place(fit()));
    button("1:1", "natural size", () => place(1));
    const share = document.createElement("output");
    tools.append(share);
    viewport.parentElement.querySelector("figcaption").append(tools);

    const fingers = new Map();
    const from = (event) => {
      const frame = viewport.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    viewport.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, from(event));
      viewport.setPointerCapture(event.pointerId);
      viewport.classList.add("dragged");
    });
    viewport.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()];
      const old = fingers.get(event.pointerId);
      const now = from(event);
      fingers.set(event.pointerId, now);
      if (before.length === 1) {
        x += now[0] - old[0];
        y += now[1] - old[1];
        paint();
      } else if (before.length === 2) {
        const after = [...fingers.values()];
        const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
        const middle = ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
        const [was, is] = [middle(before), middle(after)];
        x += is[0] - was[0];
        y += is[1] - was[1];
        zoom(apart(after) / apart(before), ...is);
      }
    });
    const lift = (event) => {
      fingers.delete(event.pointerId);
      if (!fingers.size) viewport.classList.remove("dragged");
    };
    viewport.addEventListener("pointerup", lift);
    viewport.addEventListener("pointercancel", lift);
    // A page that scrolls past must not be caught: the wheel zooms a tree that has been clicked.
    viewport.addEventListener("wheel", (event) => {
      if (document.activeElement !== viewport && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode ? 16 : 1);
      zoom(Math.exp(-Math.max(-200, Math.min(200, pixels)) / 400), ...from(event));
    }, { passive: false });
    viewport.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const far = 60;
      const acts = {
        ArrowLeft: () => (x += far), ArrowRight: () => (x -= far),
        ArrowUp: () => (y += far), ArrowDown: () => (y -= far),
        "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4),
        0: () => place(fit()),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
      paint();
    });
    place(start);
  };
  // A frame has no size before its excerpt is open.
  const waken = (excerpt) => all(".viewport:not(.live)", excerpt).forEach(live);
  for (const excerpt of all(".excerpt")) {
    excerpt.addEventListener("toggle", () => excerpt.open && waken(excerpt));
    if (excerpt.open) waken(excerpt);
  }

  // Excerpts: one is shown, or two beside each other.
  const chooser = document.getElementById("chooser");
  if (!chooser) return;
  const excerpts = all(".excerpt");
  const [prompt, method, beside] = ["prompt", "method", "beside"].map((id) => document.getElementById(id));
  const option = (value, words) => new Option(words, value);
  const prompts = new Map(excerpts.map((part) => [part.dataset.prompt, part.dataset.title]));
  const methods = [...new Set(excerpts.map((part) => part.dataset.method))];
  prompt.append(...[...prompts].map(([value, words]) => option(value, words)));
  method.append(...methods.map((name) => option(name, name)));
  beside.append(option("", "nothing"), ...methods.map((name) => option(name, name)));
  const choose = () => {
    const wanted = [method.value, beside.value];
    const shown = excerpts.filter((part) => {
      const is = part.dataset.prompt === prompt.value && wanted.includes(part.dataset.method);
      part.hidden = !is;
      part.open = is;
      part.style.order = part.dataset.method === method.value ? 0 : 1;
      return is;
    });
    document.getElementById("excerpts").classList.toggle("pair", shown.length > 1);
    shown.forEach(waken);
  };
  chooser.hidden = false;
  document.getElementById("moves").hidden = false;
  chooser.addEventListener("change", choose);
  // The first method that drafted says more than plain decoding.
  const first = excerpts.find((part) => part.querySelector(".tree")) || excerpts[0];
  if (first) method.value = first.dataset.method;
  choose();
})();
