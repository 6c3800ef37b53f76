"""Prompts that need no download: chat, code, copying, lists, repeated words, other scripts; 60 by hand, 140 by rule."""

from itertools import product

CHAT = (
    "What is the capital of France?",
    "Tell me a short story about a lighthouse keeper.",
    "Explain to a child why the sky is blue.",
    "Give me three reasons to learn to cook.",
    "Write a polite e-mail that declines an invitation.",
    "What should I pack for a week in the mountains?",
    "Who was Ada Lovelace?",
    "Describe the taste of an orange to someone who never ate one.",
    "Write a haiku about winter.",
    "Plan a day in Lisbon for two people.",
    "How does a bicycle stay upright?",
    "Give advice to someone who starts a new job tomorrow.",
    "What is the difference between weather and climate?",
    "Invent a name and a slogan for a bakery.",
    "Translate to German: where is the nearest station?",
    "Écris une phrase sur la mer.",
    "¿Cuál es la capital de Perú?",
    "日本の首都はどこですか。",
    "Describe a party with emoji only: 🎉🎂👩‍👩‍👧‍👦🇯🇵👍🏽",
    "Reply with the single word yes.",
)
CODE = (
    "def fibonacci(n):\n    ",
    "import numpy as np\n\ndef softmax(x):\n    ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ",
    "# Read a CSV file and print the sum of the second column.\n",
    "SELECT name, count(*) FROM orders\nWHERE ",
    "#!/bin/sh\n# Remove files older than seven days.\nset -eu\n",
    "function debounce(callback, delay) {\n  let timer;\n  ",
    "fn main() {\n    let numbers = vec![1, 2, 3];\n    ",
    "def test_addition():\n    assert add(1, 2) == 3\n\ndef test_subtraction():\n    ",
    "for i in range(10):\n    print(i)\nfor j in range(10):\n    print(j)\nfor k in range(10):\n    ",
    "<html>\n  <head>\n    <title>Outrider</title>\n  </head>\n  <body>\n    <h1>",
    '{\n  "name": "outrider",\n  "version": "0.1.0",\n  "dependencies": {\n    "',
    "x = [1, 2, 3]\ny = [value * 2 for value in x]\nz = [value * 3 for value in y]\nw = ",
    "try:\n    value = int(text)\nexcept ValueError:\n    ",
    'package main\n\nimport "fmt"\n\nfunc main() {\n\t',
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n    ",
    "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x: float\n    ",
    "int max(int a, int b) {\n    return a > b ? a : b;\n}\n\nint min(int a, int b) {\n    ",
    'import re\n\nEMAIL = re.compile(r"',
    '```python\nprint("hello")\n```\n\n```python\nprint("world")\n```\n\n```python\n',
)
TEXT = (
    "Once upon a time",
    "The",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "Monday, Tuesday, Wednesday,",
    "a b c d e f g a b c d e f g a b c d",
    "To be, or not to be, that is the question. To be, or not to be,",
    "The cat sat on the mat. The dog sat on the log. The frog sat on",
    "Name: Ann\nAge: 31\nCity: Oslo\n\nName: Ben\nAge: 27\nCity: Rome\n\nName: Cleo\n",
    "Q: What is 2 + 2?\nA: 4\nQ: What is 3 + 3?\nA: 6\nQ: What is 4 + 4?\nA:",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "In this paper we show that",
    "Ingredients:\n- 200 g flour\n- 100 g sugar\n- 2 eggs\n\nMethod:\n1.",
    "    indented text\n    more indented text\n        ",
    "http://example.com/a http://example.com/b http://example.com/",
    "AAAA BBBB AAAA BBBB AAAA BBBB CCCC AAAA",
    "Zürich, Genève, København, São Paulo, Kraków, ",
    "Привет, мир! Как дела?",
    "3.14159265358979323846264338327950288",
    "....................",
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the",
)
_WORDS = ("token", "the", "word and", "yes no", "\n", "ab", "0", "🎉", "Hello, world!", "return")
_TOPICS = ("tea", "rivers", "chess", "the moon", "glass", "bees", "trains", "paper", "salt", "maps")
_ORDERS = (
    "Write one paragraph about {}.",
    "List five facts about {}.",
    "What would you ask an expert about {}?",
    "Write a dialogue between two friends about {}.",
    "Explain {} in one sentence, then explain it again in other words.",
    "Answer as JSON with the keys title and body: what matters most about {}?",
    "Compose a short advertisement for {}.",
    "Repeat the following sentence three times: everyone likes {} on Sundays.",
)
_NUM_RECORDS = (2, 4, 6, 8, 10, 12)


def completions() -> list[str]:
    """Prompts to be continued as they stand."""
    repeated = [f"{word} " * times for word, times in product(_WORDS, (6, 20, 48))]
    return [*CODE, *TEXT, *repeated]


def chats() -> list[str]:
    """Prompts to be answered as a chat message."""
    orders = [order.format(topic) for order, topic in product(_ORDERS, _TOPICS)]
    copies = [f"Copy this exactly:\n{_records(count, key)}" for count, key in product(_NUM_RECORDS, _COPIED)]
    return [*CHAT, *orders, *copies]


_COPIED = (
    '{{"id": {0}, "name": "user{0}", "mail": "user{0}@example.com"}}',
    "row {0}: value {1}",
    "def f{0}(x):\n    return x + {1}",
    "{0}. item number {0} of the list",
    "| {0} | {1} | ok |",
)


def _records(count: int, form: str) -> str:
    return "\n".join(form.format(index, index * 37 % 101) for index in range(count))
