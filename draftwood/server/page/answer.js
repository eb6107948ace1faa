// An answer as it is shown: coloured by source, with its speed. Text becomes text nodes only.

import { classOf } from "./sources.js";

export function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.append(text);
  return made;
}

// What one request has decoded so far, and when: in milliseconds, by the page's clock.
export class Run {
  text = "";
  tokens = 0;
  bySource = new Map();

  add(tokens, now = performance.now()) {
    if (!this.tokens) {
      this.begin = now;
      this.first = tokens.length;
    }
    this.end = now;
    this.tokens += tokens.length;
    for (const { text, source } of tokens) {
      this.text += text;
      this.bySource.set(source, (this.bySource.get(source) ?? 0) + 1);
    }
  }

  // Tokens a second after the first ones, as the prompt's time is not decoding; NaN if unknown.
  get rate() {
    const seconds = (this.end - this.begin) / 1000;
    return seconds > 0 ? (this.tokens - this.first) / seconds : NaN;
  }

  // Tokens a step; the first token is the prompt's.
  get perStep() {
    return (this.tokens - this.first) / this.steps;
  }
}

export function number(value, digits = 1) {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

export class AnswerView {
  constructor(chat) {
    this.root = element("article", "message answer");
    this.text = element("p", "text");
    this.note = element("p", "note");
    this.root.append(this.text, this.note);
    chat.append(this.root);
  }

  // Neighbours of one source share an element.
  add(tokens) {
    for (const { text, source } of tokens) {
      if (!text) continue;
      const last = this.text.lastChild;
      if (last && this.source === source) {
        (last.nodeType === Node.TEXT_NODE ? last : last.firstChild).appendData(text);
        continue;
      }
      this.source = source;
      if (source === null) {
        this.text.append(document.createTextNode(text));
      } else {
        const span = element("span", `source ${classOf(source)}`);
        span.append(document.createTextNode(text));
        span.title = source;
        this.text.append(span);
      }
    }
  }

  showSpeed(run) {
    const rate = element("strong", "rate", number(run.rate));
    this.note.replaceChildren(rate, ` tokens per second, ${run.tokens} tokens`);
    if (run.steps) this.note.append(`, ${number(run.perStep, 2)} a step`);
  }

  showPlain(plain) {
    this.plain ??= this.root.appendChild(element("p", "note plain"));
    this.plain.replaceChildren(
      "Plain decoding: ",
      element("strong", "rate", number(plain.rate)),
      ` tokens per second, ${plain.tokens} tokens`,
    );
  }

  showComparison(run, plain) {
    this.showPlain(plain);
    const times = run.rate / plain.rate;
    if (Number.isFinite(times)) this.plain.append(`; drafting is ${number(times, 2)} times as fast`);
    if (run.text === plain.text) {
      this.plain.append(". ", element("strong", "same", "The text is the same."));
    } else {
      const other = element("strong", "other", "The text is not the same");
      this.plain.append(". ", other, ": by rounding, or because the method samples its drafts.");
    }
  }
}
