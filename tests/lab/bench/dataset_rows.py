"""One invented row or two in each published shape, and what they become."""

HUMANEVAL: list[dict[str, object]] = [
    {
        "task_id": "HumanEval/0",
        "prompt": 'def halve(n: int) -> float:\n    """ Half of n.\n    """\n',
        "entry_point": "halve",
        "canonical_solution": "    return n / 2\n",
        "test": "def check(candidate):\n    assert candidate(4) == 2\n",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": "def nothing():\n",
        "entry_point": "nothing",
        "canonical_solution": "    pass\n",
        "test": "",
    },
]
GSM8K: list[dict[str, object]] = [
    {
        "question": "Two crates hold 3 pears each. How many pears?",
        "answer": "2*3=<<2*3=6>>6.\n#### 6",
    },
    {"question": "Ann had 5 and lost 1. How many are left?", "answer": "5-1=<<5-1=4>>4\n#### 4"},
]
MBPP: list[dict[str, object]] = [
    {
        "text": "Write a function to double a number.",
        "code": "def double(n):\r\n  return 2 * n",
        "task_id": 11,
        "test_setup_code": "",
        "test_list": ["assert double(1) == 2", "assert double(0) == 0"],
        "challenge_test_list": [],
    }
]
MBPP_SANITIZED: list[dict[str, object]] = [
    {
        "source_file": "round one.json",
        "task_id": 12,
        "prompt": "Write a function to negate a number.",
        "code": "def negate(n):\n  return -n",
        "test_imports": [],
        "test_list": ["assert negate(1) == -1"],
    }
]
MT_BENCH: list[dict[str, object]] = [
    {"question_id": 81, "category": "writing", "turns": ["Write an ode.", "Now shorten it."]},
    {
        "question_id": 111,
        "category": "math",
        "turns": ["What is 2+2?", "And doubled?"],
        "reference": ["4", "8"],
    },
]
SPEC_BENCH: list[dict[str, object]] = [
    *MT_BENCH,
    {"question_id": 161, "category": "translation", "turns": ["Translate: Hallo"]},
    {"question_id": 241, "category": "summarization", "turns": ["Summarize: a b c"]},
    {"question_id": 321, "category": "qa", "turns": ["Who?"], "reference": ["she"]},
    {"question_id": 401, "category": "math_reasoning", "turns": ["How many?"]},
    {"question_id": 481, "category": "rag", "turns": ["Given the text, who?"]},
]
MT_BENCH_PROMPTS: list[dict[str, object]] = [
    {
        "prompt": ["Write a poem.", "Now rhyme it."],
        "prompt_id": 20764998,
        "category": "writing",
        "reference": [],
    }
]
SPEED_BENCH: list[dict[str, object]] = [
    {
        "question_id": "q1",
        "category": "coding",
        "sub_category": "python",
        "turns": ["Write it.", "Faster."],
        "source": "somewhere",
        "src_id": "7",
        "difficulty": None,
        "multiturn": True,
    },
    {
        "question_id": "q2",
        "category": "rag",
        "sub_category": "chat",
        "messages": [{"role": "user", "content": "Who?"}],
    },
]
OWN: list[dict[str, object]] = [{"id": "a/0", "task": "t", "prompt": "hello"}]

BARE: list[dict[str, object]] = [
    {"prompt": "Once upon a time"},
    {"prompt": "def f(x):", "task": "code"},
    {"id": "mine", "prompt": "Hello"},
]
ALL = {
    "bare": BARE,
    "draftwood": OWN,
    "gsm8k": GSM8K,
    "humaneval": HUMANEVAL,
    "mbpp": MBPP + MBPP_SANITIZED,
    "mt_bench_prompts": MT_BENCH_PROMPTS,
    "questions": SPEC_BENCH,
    "speed_bench": SPEED_BENCH,
}
