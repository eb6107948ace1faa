"""Chat prompts for training drafts of a chat model, made from a directory of training text.

Usage: python runs/smollm2/prompts.py DATA OUT [--count 12000] [--first 6144] [--seed 1]

DATA holds chat, code, math, wiki and prose as `<domain>.txt.gz`; documents end with a line
`<|endoftext|>`. OUT becomes a JSON Lines file: one object a line with `id`, `task` and `messages`.
The same text and seed give the same file. Tasks are those that people give to a small chat model:
questions, conversations, writing, completing, editing and explaining code, arithmetic, and work on
a text that is given (summarise, answer, extract, rewrite, translate). All tasks take turns, so any
part of the list has the same shares of them: --skip leaves out the first ones, --first those after
so many. With --plain, conversations are left out, and each object has `id`, `task` and `prompt`, as
`draftwood calibrate` reads them.
"""

import argparse
import ast
import gzip
import json
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

SHARES = {
    "question": 0.10,
    "dialogue": 0.12,
    "write_code": 0.14,
    "complete_code": 0.10,
    "edit_code": 0.10,
    "explain_code": 0.04,
    "math": 0.12,
    "summarise": 0.08,
    "answer": 0.08,
    "extract": 0.04,
    "rewrite": 0.03,
    "translate": 0.02,
    "continue": 0.03,
}
"""Share of each task; they add up to 1."""

LEAST, MOST = 60, 2400
"""Fewest and most characters of a passage or of code that a prompt holds."""

EDITS = (
    "Add type hints to all parameters and return values.",
    "Add a docstring that explains the parameters and the return value.",
    "Rename the variables so that their names say what they hold.",
    "Rename the function `{name}` to `{name}_v2` and change nothing else.",
    "Add input validation that raises ValueError for bad arguments.",
    "Add logging to this function.",
    "Simplify the code without changing what it does.",
    "Add a comment above each step.",
    "Convert all string formatting to f-strings.",
    "Handle the case that an argument is None.",
)
WRITES = (
    "Write a Python function `{name}({arguments})`. {summary}",
    "I need a Python function called {name} that does the following: {summary}",
    "{summary} Give me the code in Python, with a short example of how to use it.",
    "Implement this in Python:\n\n{summary}\n\n"
    "The function is named `{name}` and takes {arguments}.",
)
COMPLETES = (
    "Complete the following Python function.\n\n```python\n{head}```",
    "{head}",
    "Finish this code and return the whole function:\n\n```python\n{head}```",
    "Implement the body of this function:\n```python\n{head}```",
)
EXPLAINS = (
    "Explain what this code does.\n\n```python\n{code}\n```",
    "What does the function `{name}` return, and how?\n\n```python\n{code}\n```",
    "Write unit tests for this function:\n\n```python\n{code}\n```",
)
SUMMARIES = (
    "Summarise the following text in a few sentences.\n\n{passage}",
    "Summarize this article:\n\n{passage}",
    "{passage}\n\nWhat are the main points of this text? Answer with a list.",
    "Write a one-paragraph summary of the text below.\n\n{passage}",
)
ANSWERS = (
    "Answer the question with the help of the passage.\n\nPassage: {passage}\n\n"
    "Question: What does the passage say about {topic}?",
    "Use only the text below to answer.\n\n{passage}\n\nWhat is {topic} known for?",
    "Here is some context:\n{passage}\n\nBased on this context, who or what is {topic}?",
    "{passage}\n\nAccording to this text, what do we learn about {topic}? Quote the text.",
)
EXTRACTS = (
    "Extract all names, places and dates from this text as JSON with the keys names, places and "
    "dates.\n\n{passage}",
    "Return a JSON list of the facts in the following text. Each has the keys subject and fact."
    "\n\n{passage}",
    "List every number in the text below and say what it stands for.\n\n{passage}",
)
REWRITES = (
    "Rewrite the following text in plain modern English.\n\n{passage}",
    "Correct spelling and punctuation, and change nothing else:\n\n{passage}",
    "Make this text shorter and keep its meaning.\n\n{passage}",
)
LANGUAGES = ("German", "French", "Spanish", "Italian")
CONTINUES = (
    "Continue this story.\n\n{passage}",
    "Write the next paragraph of this text:\n\n{passage}",
)

Messages = list[dict[str, str]]


def documents(data: Path, domain: str) -> list[str]:
    with gzip.open(data / f"{domain}.txt.gz", "rt", encoding="utf-8", newline="") as file:
        return [text.strip() for text in file.read().split("\n<|endoftext|>\n") if text.strip()]


def asked(content: str) -> Messages:
    return [{"role": "user", "content": content}]


def turns(text: str) -> Messages:
    """The turns of a document of `User:` and `Assistant:` paragraphs."""
    found: Messages = []
    for part in re.split(r"(?m)^(?=(?:User|Assistant): ?)", text):
        role, _, content = part.partition(":")
        if content.strip():
            found.append({"role": role.lower(), "content": content.strip()})
    return found


def questions(data: Path, rng: random.Random) -> Iterator[Messages]:
    """Opening turns of conversations, without small talk."""
    for text in shuffled(documents(data, "chat"), rng):
        first = turns(text)[:1]
        if first and first[0]["role"] == "user" and 40 <= len(first[0]["content"]) <= MOST:
            yield first


def dialogues(data: Path, rng: random.Random) -> Iterator[Messages]:
    """Conversations up to a user's turn behind the first."""
    for text in shuffled(documents(data, "chat"), rng):
        found = turns(text)
        ends = [i for i, turn in enumerate(found) if i and turn["role"] == "user"]
        alternate = all(a["role"] != b["role"] for a, b in pairwise(found))
        if ends and alternate and found[0]["role"] == "user":
            cut = found[: rng.choice(ends[:4]) + 1]
            if sum(len(turn["content"]) for turn in cut) <= MOST:
                yield cut


def math(data: Path, rng: random.Random) -> Iterator[Messages]:
    for text in shuffled(documents(data, "math"), rng):
        yield asked(text.partition("\nAnswer:")[0].removeprefix("Question:").strip())


class Function:
    """A function of the code domain: its source, docstring and signature."""

    def __init__(self, source: str, node: ast.FunctionDef) -> None:
        self.name = node.name
        self.arguments = ast.unparse(node.args)
        lines = source.splitlines()
        self.code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        doc = ast.get_docstring(node) or ""
        self.summary = " ".join(doc.split("\n\n")[0].split())
        first = node.body[0]
        self.head = textwrap.dedent("\n".join(lines[node.lineno - 1 : first.end_lineno])) + "\n"


def functions(data: Path, rng: random.Random) -> Iterator[Function]:
    """Functions with a docstring of a sentence or more."""
    for text in shuffled(documents(data, "code"), rng):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        rng.shuffle(nodes)
        yielded = 0
        for node in nodes:
            if yielded == 4 or node.name.startswith("test"):
                continue
            if ast.get_docstring(node) and len(node.body) > 1:
                found = Function(text, node)
                if len(found.summary) >= LEAST // 2 and len(found.code) <= MOST:
                    yielded += 1
                    yield found


def from_code(templates: tuple[str, ...]) -> Callable[[Path, random.Random], Iterator[Messages]]:
    def made(data: Path, rng: random.Random) -> Iterator[Messages]:
        for found in functions(data, rng):
            yield asked(
                rng.choice(templates).format(
                    name=found.name,
                    arguments=found.arguments or "no arguments",
                    summary=found.summary,
                    code=found.code,
                    head=found.head,
                )
            )

    return made


def edits(data: Path, rng: random.Random) -> Iterator[Messages]:
    for found in functions(data, rng):
        order = rng.choice(EDITS).format(name=found.name)
        code = f"```python\n{found.code}\n```"
        yield asked(f"{order}\n\n{code}" if rng.random() < 0.7 else f"{code}\n\n{order}")


def passages(
    data: Path, domains: tuple[str, ...], rng: random.Random, most: int
) -> Iterator[tuple[str, str]]:
    """Consecutive paragraphs of at most about ``most`` characters, each with a topic."""
    for domain in domains:
        for text in shuffled(documents(data, domain), rng):
            title = re.match(r"= ([^=\n]+) =", text)
            if domain == "wiki" and not title:  # a list of single sentences
                continue
            paragraphs = [p for p in text.split("\n\n") if len(p) >= LEAST and p[0] != "="]
            for _ in range(4 if domain == "wiki" else 40):
                found = excerpt(paragraphs, rng, rng.randint(400, most))
                topic = title[1] if title else named(found)
                if topic and LEAST <= len(found) <= MOST:
                    yield topic, found


def excerpt(paragraphs: list[str], rng: random.Random, most: int) -> str:
    found = ""
    for paragraph in paragraphs[rng.randrange(max(1, len(paragraphs) - 3)) :]:
        if found and len(found) + len(paragraph) > most:
            break
        found = f"{found}\n\n{paragraph}".strip()
    return found


def named(passage: str) -> str:
    """The name that a passage has most often within its sentences, or an empty string."""
    names = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{3,}(?: [A-Z][a-z]{2,})*", passage))
    return names.most_common(1)[0][0] if names else ""


def from_passage(
    templates: tuple[str, ...], *domains: str, most: int = MOST
) -> Callable[[Path, random.Random], Iterator[Messages]]:
    def made(data: Path, rng: random.Random) -> Iterator[Messages]:
        for topic, passage in passages(data, domains, rng, most):
            yield asked(rng.choice(templates).format(topic=topic, passage=passage))

    return made


def translations(data: Path, rng: random.Random) -> Iterator[Messages]:
    for _, passage in passages(data, ("wiki", "prose"), rng, 500):
        if len(passage) <= 700:
            yield asked(f"Translate this text to {rng.choice(LANGUAGES)}:\n\n{passage}")


TASKS: dict[str, Callable[[Path, random.Random], Iterator[Messages]]] = {
    "question": questions,
    "dialogue": dialogues,
    "write_code": from_code(WRITES),
    "complete_code": from_code(COMPLETES),
    "edit_code": edits,
    "explain_code": from_code(EXPLAINS),
    "math": math,
    "summarise": from_passage(SUMMARIES, "wiki", "prose"),
    "answer": from_passage(ANSWERS, "wiki", "prose", most=1200),
    "extract": from_passage(EXTRACTS, "wiki", "prose", most=1200),
    "rewrite": from_passage(REWRITES, "prose", most=800),
    "translate": translations,
    "continue": from_passage(CONTINUES, "prose", most=1200),
}


def shuffled(texts: list[str], rng: random.Random) -> list[str]:
    return rng.sample(texts, len(texts))


def prompts(data: Path, count: int, seed: int) -> list[tuple[str, Messages]]:
    """About ``count`` prompts, tasks in turn, so that every part of the list has all of them."""
    found: list[tuple[float, str, Messages]] = []
    for task, make in TASKS.items():
        wanted = round(SHARES[task] * count)
        made = list(islice(make(data, random.Random(f"{seed} {task}")), wanted))
        found += [((i + 0.5) / wanted, task, messages) for i, messages in enumerate(made)]
    return [(task, messages) for _, task, messages in sorted(found, key=lambda each: each[:2])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=12000)
    parser.add_argument("--first", type=int, default=6144, help="prompts that are written")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="prompts that are left out before them")
    parser.add_argument("--plain", action="store_true", help="for draftwood calibrate")
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8") as file:
        numbers = {task: iter(range(given.count)) for task in TASKS}
        found = prompts(given.data, given.count, given.seed)
        for place, (task, messages) in enumerate(found[: given.skip + given.first]):
            row: dict[str, object] = {"id": f"{task}-{next(numbers[task])}", "task": task}
            row |= {"prompt": messages[0]["content"]} if given.plain else {"messages": messages}
            if place < given.skip or (given.plain and len(messages) > 1):
                continue
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
