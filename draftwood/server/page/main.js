// The conversation: asks the model, shows its answers, and compares them with plain decoding.

import { KeyNeeded, hasKey, stream, useKey } from "./api.js";
import { AnswerView, Run, element } from "./answer.js";
import { watch } from "./live.js";
import { showLegend } from "./sources.js";

const place = (id) => document.getElementById(id);
const watchers = { onServed: showServed, onKeyNeeded: askForKey };

let served = null; // what /stats says
let messages = [];
let runs = [];
let abort = null; // of the request that is being answered

const hint = place("prompt").placeholder;

// Again after another server has taken the place of this one.
function showServed(stats) {
  served = stats;
  place("served").textContent = `${stats.model}, decoded by ${stats.method}`;
  place("prompt").placeholder = stats.has_chat_template
    ? hint
    : "Text that the model continues: it has no chat template";
}

function askForKey() {
  place("key-form").hidden = false;
  showProblem(hasKey() ? "The server does not accept this key." : "");
}

function showProblem(message) {
  place("problem").textContent = message;
  place("problem").hidden = !message;
}

// The path and the body of a request that a conversation makes.
function asked(conversation) {
  const sampling = {
    temperature: place("temperature").valueAsNumber || 0,
    max_tokens: place("max-tokens").valueAsNumber || 256,
    seed: Math.floor(Math.random() * 2 ** 32), // the same for drafting and plain decoding
    token_sources: true,
  };
  if (served?.has_chat_template === false) {
    const prompt = conversation.map((message) => message.content).join("");
    return ["v1/completions", { ...sampling, prompt }];
  }
  return ["v1/chat/completions", { ...sampling, messages: conversation }];
}

// Decodes one request; `content` collects the answer without what is no part of it.
async function decode(path, body, onTokens) {
  const run = new Run();
  run.content = "";
  for await (const chunk of stream(path, body, abort.signal)) {
    for (const choice of chunk.choices) {
      run.content += choice.delta?.content ?? choice.text ?? "";
      if (choice.token_sources) {
        run.add(choice.token_sources);
        onTokens(run, choice.token_sources);
      }
      run.steps = choice.speculative_decoding_stats?.num_spec_steps ?? run.steps;
    }
  }
  return run;
}

// Changes the conversation; if its end was in view, it is afterwards.
function following(change) {
  const chat = place("chat");
  const atEnd = chat.scrollTop + chat.clientHeight > chat.scrollHeight - 40;
  change();
  if (atEnd) chat.scrollTop = chat.scrollHeight;
}

async function answer(text) {
  const chat = place("chat");
  const question = element("div", "message user");
  question.append(element("p", "text", text));
  chat.append(question);
  place("hint").hidden = true;
  chat.scrollTop = chat.scrollHeight;
  const conversation = [...messages, { role: "user", content: text }];
  const [path, body] = asked(conversation);
  const view = new AnswerView(chat);
  let run = null;
  try {
    await decode(path, body, (newest, tokens) => {
      run = newest;
      following(() => {
        view.add(tokens);
        view.showSpeed(run);
        showLegend(place("legend"), [...runs, run]);
      });
    });
    if (!run) throw new Error("the answer has no tokens");
    view.showSpeed(run); // with its steps, which come last
    if (place("compare").checked) {
      const plain = await decode(path, { ...body, speculate: false }, (newest) =>
        following(() => view.showPlain(newest)),
      );
      following(() => view.showComparison(run, plain));
    }
  } finally {
    if (run) {
      runs.push(run);
      messages = [...conversation, { role: "assistant", content: run.content }];
    } else {
      question.remove();
      view.root.remove();
      place("prompt").value = text;
    }
  }
}

function setBusy(busy) {
  place("send").disabled = busy;
  place("clear").disabled = busy;
  place("stop").hidden = !busy;
}

async function send() {
  const text = place("prompt").value;
  if (abort || !text.trim()) return;
  abort = new AbortController();
  setBusy(true);
  showProblem("");
  place("prompt").value = "";
  try {
    await answer(text);
  } catch (error) {
    if (error instanceof KeyNeeded) askForKey();
    else if (!abort.signal.aborted) showProblem(error.message);
  } finally {
    abort = null;
    setBusy(false);
    place("prompt").focus();
  }
}

place("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
place("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
place("stop").addEventListener("click", () => abort?.abort());
place("clear").addEventListener("click", () => {
  messages = [];
  runs = [];
  place("chat").replaceChildren(place("hint"));
  place("hint").hidden = false;
  showLegend(place("legend"), runs);
});
place("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = place("key").value.trim();
  place("key").value = "";
  if (!/^[!-~]+$/.test(key)) {
    showProblem("A key has printable ASCII characters without spaces: this is none.");
    return;
  }
  useKey(key);
  place("key-form").hidden = true;
  showProblem("");
  watch(watchers);
});
watch(watchers);
