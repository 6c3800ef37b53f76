"""Prompts written for this test, with the domain that a person would give them. None is taken from a benchmark."""

from cluster.routing.types import Domain

_ARTICLE = (
    "The town council met on Tuesday to decide about the old tram depot. The building has stood empty for years, "
    "and the roof has begun to leak. Three offers lay on the table: a market hall, a school of music, and flats for "
    "pensioners. The mayor spoke for the market, pointing at the success of the one in the next district, while "
    "the opposition feared that traffic would double on Saturdays. A petition with many signatures asked for the "
    "school. After two hours the vote was put off until the engineers have looked at the foundations. "
)
_LONG = _ARTICLE * 3
_MODULE = (
    "import csv\nfrom pathlib import Path\n\n\nclass Ledger:\n    def __init__(self, path):\n        self.path = path\n"
    "        self.rows = []\n\n    def load(self):\n        with self.path.open() as file:\n"
    "            self.rows = list(csv.DictReader(file))\n\n    def total(self):\n"
    "        return sum(float(row['amount']) for row in self.rows)\n"
)

CODE = (
    "Write a Python function that returns the n-th prime number.",
    "Implement a binary search tree in Java with insert and delete.",
    "How do I reverse a linked list in C++?",
    "Fix this bug:\n\n```python\nfor i in range(len(items)):\n    items.remove(items[i])\n```",
    'def moving_average(values, window):\n    """Means of windows.\n\n    >>> moving_average([1, 2, 3], 2)\n'
    '    [1.5, 2.5]\n    """\n',
    "Write a SQL query that finds customers without an order in the last year.",
    "Create a React component in TypeScript that shows a list of users.",
    "Refactor the following class so that it has no global state.\n\n" + _MODULE,
    "Write unit tests for this module.\n\n" + _MODULE * 4,
    "What does this regex match: ^[a-z]+\\d{2}$?",
    "Write a bash script that renames all .jpeg files to .jpg.",
    "Explain why this code prints None:\n\ndef f(x):\n    x + 1\n\nprint(f(2))",
    "Give me a Dockerfile for a FastAPI application.",
    "Write a function in Rust that parses an IPv4 address.",
    "function throttle(callback, wait) {\n  let last = 0;\n",
    "#include <vector>\n\nint longest_run(std::vector<int> values) {\n",
    "SELECT name, count(*) FROM orders GROUP BY ",
    "Convert this for loop into a list comprehension: for x in xs: if x > 2: ys.append(x)",
    "Write a recursive algorithm for the towers of Hanoi and state its time complexity.",
    "Add type hints and a docstring to this:\n\ndef join(a, b, sep):\n    return sep.join([a, b])\n",
    "Build a small CLI in Go that counts words from stdin.",
    "My program crashes with a stack trace in malloc. How can I debug it?",
    "Write CSS that centres a div on the page.",
    "Write a function that takes a string and returns true if it is a palindrome, otherwise false.",
    "How can I sort a pandas dataframe by two columns?",
    "class LinkedList:\n    def __init__(self):\n        self.head = None\n\n    def push(self, value):\n        ",
    "Write a decorator that retries a method three times.",
    "I need a shell command that finds the ten largest files below a directory.",
    'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("hello")\n',
    "Implement quicksort in Haskell.",
)

JSON = (
    "Return a JSON object with the keys name, age and city for: Ann is 31 and lives in Oslo.",
    "Extract all dates and amounts from this invoice as JSON: paid 12 euros on 3 May, 7 euros on 9 June.",
    "Convert the following list to CSV: Ann, 31; Ben, 27; Cleo, 45.",
    "Parse this address into fields street, number, city: Long Road 5, Cork.",
    'Answer only with JSON that fits this schema: {"type": "object", "properties": {"sentiment": {"type": "string"}}}',
    "Extract the entities (people, places, companies) from the sentence: Ada met Bo at Initech in Rome.",
    '{"id": 1, "name": "Ann"}\n{"id": 2, "name": "Ben"}\nContinue with five more records.',
    "Give me a YAML file that lists three servers with host and port.",
    "Produce an XML document for a book with title and author.",
    "Classify the review as positive, neutral or negative and answer in JSON: the soup was cold.",
    "Fill in this form as key-value pairs: the customer is Mr Ito, the order number 77, delivery on Friday.",
    "Extract the phone numbers in this text and output a JSON array: call 555-0101 or 555-0199.",
    "Make a table with the columns country, capital and population for five countries.",
    '```json\n{"a": 1, "b": [1, 2]}\n```\nAdd a key c with the value 3.',
    "Turn this recipe into structured data with ingredients and steps: boil two eggs, add salt.",
    "Read the table below and output the rows as JSON.\n\nname | age\nAnn | 31\nBen | 27",
    "List the attributes of this product as JSON: red cotton shirt, size M, 20 euros.",
    "Extract name, email and company from this signature: Dee Moss, dee@example.com, Moss & Sons.",
    "Generate a JSON schema for a calendar event.",
    "From the message below, extract the order id and the complaint category in the following format: id, category.",
    "Output a CSV with three columns: date, city, temperature. Make up ten rows.",
    "Given the job advert, extract the required skills as a list of strings in JSON.\n\n" + _ARTICLE,
    "Identify every brand mentioned and return the results as a JSON list: I love my Acme kettle and my Zeta toaster.",
    "Respond with valid JSON only. What is the ISO code and the currency of Norway?",
    "Map these columns to our schema: fname, lname, dob.",
)

RAG = (
    "Summarize the following article in two sentences.\n\n" + _ARTICLE,
    "Summarise: " + _LONG,
    "TL;DR\n\n" + _ARTICLE,
    "Context: " + _ARTICLE + "\n\nQuestion: Why was the vote put off?\nAnswer:",
    "Answer the question using only the documents below.\n\n[1] "
    + _ARTICLE
    + "\n[2] "
    + _ARTICLE
    + "\n\nWho spoke first?",
    _LONG + "\n\nWhat did the petition ask for?",
    "Based on the passage, what did the opposition fear?\n\n" + _ARTICLE,
    "What are the key points of this report?\n\n" + _LONG,
    "Document 1:\n" + _ARTICLE + "\n\nDocument 2:\n" + _LONG + "\n\nWhich of them mentions a petition?",
    "Give me a short summary of this meeting transcript.\n\nMayor: we must decide.\nClerk: the roof leaks.",
    "According to the article, who spoke for the market?\n\n" + _LONG,
    "Write a one-paragraph summary of the text below.\n\n" + _LONG,
    "Passage: " + _LONG + "\nQuery: What stands on the table?",
    "<context>" + _ARTICLE + "</context>\nAnswer from the context: what leaks?",
    "Condense this into bullet points with the main points:\n\n" + _LONG,
    "Write highlights for this news article:\n" + _LONG,
    _LONG + "\nTL;DR:",
    "Use the excerpt to answer. If the answer is not in the excerpt, say so.\n\nExcerpt: "
    + _ARTICLE
    + "\n\nWho is the mayor?",
    "Title: The tram depot\n\n" + _LONG + "\n\nWhat is the main idea of the passage?",
    "Shorten this email thread to what was decided:\n\n" + _LONG,
    "Read the documents and cite the sources for your answer: when does the council meet again?\n\n[1] " + _LONG,
    "Please summarize the plot of the report and the recommendations it makes: " + _LONG,
    "What does the following paragraph say about traffic?\n\n" + _ARTICLE,
    "Source 1: " + _ARTICLE + "\nSource 2: " + _ARTICLE + "\nWhich source mentions the school?",
    "Write an abstract for this paper.\n\n" + _LONG * 4,
)

CREATIVE = (
    "Write a short story about a clock that runs backwards.",
    "Write a haiku about fog.",
    "Compose a love poem for a lighthouse.",
    "Tell me a bedtime story with a dragon and a baker.",
    "Write lyrics for a blues song about a lost umbrella.",
    "Pretend to be a pirate and describe your breakfast.",
    "Act as a medieval knight who has just discovered a telephone.",
    "Write a limerick about a cat from Cork.",
    "Write the opening chapter of a detective novel set in Lisbon.",
    "Invent a dialogue between the sun and the moon.",
    "Write a persuasive essay on why libraries matter.",
    "Draft a heartfelt letter to an old friend.",
    "Write an engaging blog post about a weekend in Porto.",
    "Imagine you are a tree. Describe a year of your life.",
    "Write an email to my boss asking for a day off.",
    "Come up with a slogan for a bakery.",
    "Write a monologue for a villain who regrets everything.",
    "In the style of a fairy tale, describe a printer that jams.",
    "Write a toast for my sister's wedding.",
    "Tell a joke about penguins.",
    "Once upon a time, in a village without names,",
    "Create a vivid scene in which two strangers share an umbrella.",
    "Write a product description for a teapot that sings.",
    "Play the role of a grumpy librarian and answer my questions.",
    "Write a speech for a character who must give up the throne.",
    "If you were a ghost in a museum, what would you do at night?",
    "Write a fable with a moral about patience.",
    "Write a poem in free verse about rain on a tin roof.",
    "You are a wizard at a job interview. Stay in your role and introduce yourself.",
    "Write a cover letter for a post as a gardener.",
)

CHAT = (
    "What is the capital of Norway?",
    "Who painted the ceiling of the Sistine Chapel?",
    "Why is the sky blue?",
    "Translate into French: the train leaves at nine.",
    "Translate this sentence from German to English: Der Hund schläft.",
    "A baker sells 24 rolls in the morning and half as many in the afternoon. How many rolls does he sell in total?",
    "Solve for x: 3x + 7 = 22.",
    "What is the difference between a virus and a bacterium?",
    "Hi, how are you?",
    "Explain how vaccines work.",
    "Recommend three museums in Vienna.",
    "How do I remove a red wine stain?",
    "When did the Berlin Wall fall?",
    "If all cats are animals and some animals are black, are all cats black?",
    "A car drives 180 km in 2.5 hours. What is its average speed?",
    "What should I eat before a marathon?",
    "Is it safe to drink rain water?",
    "Describe how a steam engine works.",
    "Discuss the causes of the First World War.",
    "Define inflation and tell me how it is measured.",
    "Tell me about the life of bees.",
    "How does photosynthesis work?",
    "Calculate the area of a circle with radius 4.",
    "Which is larger, Iceland or Ireland?",
    "Thanks! And what about Sundays?",
    "My neighbour is loud at night. What can I do?",
    "Compare nuclear and solar power in terms of cost.",
    "Give me advice for a first job interview.",
    "Where do swallows spend the winter?",
    "Prove that the square root of two is irrational.",
    "What are the main ingredients of a curry?",
    "How many moons does Mars have?",
    "¿Dónde está la estación?",
    "Can dogs eat grapes?",
    "Ann has three times as many apples as Ben. Together they have 48. How many does Ben have?",
)

LABELLED: tuple[tuple[Domain, str], ...] = tuple(
    (domain, prompt)
    for domain, prompts in (
        (Domain.CODE_SYNTHESIS, CODE),
        (Domain.STRUCTURED_JSON, JSON),
        (Domain.RAG_SUMMARY, RAG),
        (Domain.CREATIVE_WRITING, CREATIVE),
        (Domain.GENERAL_CHAT, CHAT),
    )
    for prompt in prompts
)
