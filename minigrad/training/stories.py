"""The default text: very short stories, drawn from a grammar of our own, the same on every Python and machine.

    text, nats = corpus(1_000_000)    # 900,000 characters to train on, then 100,000 for validation

A story is drawn by choices, each among as many as the state of its small world allows: who is there, and who has what.
All have the same chance, so the probability of a story is the product of 1/n over its choices, known
exactly, and no model can need fewer nats on average than the stories do.

What heads can find: names, things and places that return. A person is a Mc, who is "she", or an O', who is "he". So
what stands before the first letter of a name stands before no other word, and a head can look for it: where names
begin after a space, like all words, small models do not learn in two minutes to copy one that they have read.

They stand in stories.txt: first the lexicon, a row of forms for each name, thing and place, then the grammar. There
`name: line | line` are the lines of a rule, one of which is drawn; lines go on below. `<name>` is a line of another
rule, [a|b] one of the two, / a new line of the story. A line that begins with "Y?" is for stories in which there is a Y
already. A capital is a slot, filled with a row of the lexicon that stays the same in a story; X.she is a form of X's
row, and X.She or <Day> the same with a capital. A and I are words."""

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["corpus", "stories"]

HELD = 10  # every tenth combination of person, thing and place is kept for validation
LENGTH = 1_000_000  # characters of the default text
SLOTS = dict(X="person", Y="person", Z="person", C="animal", T="thing", U="thing", V="thing", P="place", Q="place")
LOOKS = ["red", "blue", "green", "yellow", "white", "old", "new", "little"]
LEXICON, GRAMMAR = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n")
TOKEN = re.compile(r"([\[\]|]|<\w+>|\b[B-HJ-Z]\b(?:\.[A-Za-z]+)?)")


def _compiled(tokens):
    """Alternatives up to the next ], as lists of str, (slot, form), ("", rule) and such alternatives."""
    found: list = [[]]
    for token in tokens:
        if token == "]":
            break
        if token == "|":
            found.append([])
        elif token == "[":
            found[-1].append(_compiled(tokens))
        elif TOKEN.fullmatch(token):
            found[-1].append(("", token[1:-1]) if token[0] == "<" else (token[0], token[2:]))
        else:
            found[-1].append(token.replace("/", "\n"))
    return found


def _rules():
    """{rule: [(what must be known or "", compiled line)]}"""
    rules, lines = {}, []
    for line in re.split(r"\n| \| ", GRAMMAR.strip()):
        rule, needs, text = re.findall(r"^(?:(\w+): )?(?:(\w+)\? )?(.*)$", line)[0]
        if rule:
            lines = rules[rule] = []
        lines += [(needs, each) for each in _compiled(iter(filter(None, TOKEN.split(text))))]
    return rules


def _a(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _lexicon():
    """{pool: [{form: text}]}"""
    pools, forms, rows = {}, [], []
    for line in re.split(r" \| |\n", LEXICON.strip()):
        if re.fullmatch("[a-z ]+", line):
            pool, *forms = line.split()
            rows = pools[pool] = []
            continue
        names, *rest = re.split("[:,] ", line)
        for name in names.split("/"):  # these names share their forms
            row = {"": name, "s": name + "'s", "a": _a(name), "in": name, "day": name, "spots": rest[1:]}
            row |= {form: f"{form} {name.partition(' ')[2]}" for form in ("to", "near")} | dict(zip(forms, rest))
            rows.append(row | {"number": len(rows)})
    return pools


RULES, ROWS = _rules(), _lexicon()


class Story:
    """A story. pick(n) draws from range(n); say(str) gets the text, piece by piece, as soon as it is drawn.

    world: {slot: its row}, and {slot + form: what was drawn}, in the order of the story."""

    def __init__(self, pick: Callable[[int], int], say: Callable[[str], Any]) -> None:
        self.pick, self.out, self.capital = pick, say, False
        self.world: dict[str, Any] = {}
        self.tell([("", "story"), "\n\n"])

    def say(self, text: str) -> None:
        """Add words to the story, with a capital if one is due."""
        self.out(text[0].upper() + text[1:] if self.capital else text)
        self.capital = False

    def tell(self, parts: Any) -> None:
        """Add the parts of a compiled line."""
        for part in parts:
            if isinstance(part, str):
                self.say(part)
            elif isinstance(part, list):
                self.tell(self.choice(part))
            else:
                slot, name = part
                self.capital |= name[:1].isupper()
                if slot:
                    self.form(slot, name.lower())
                else:
                    self.tell(self.choice([line for needs, line in RULES[name.lower()] if needs in ("", *self.world)]))

    def choice(self, options: Any) -> Any:
        """One of several options, all equally likely."""
        return options[self.pick(len(options))]

    def known(self, key: str, options: Any) -> Any:
        """What the world has at a key; drawn the first time."""
        if key not in self.world:
            self.world[key] = self.choice(options)
        return self.world[key]

    def form(self, slot: str, form: str) -> None:
        """Add a form of what fills a slot."""
        pool = SLOTS[slot]
        if pool == "thing" and form in ("a", "full"):  # "a red kite", "red kite"
            look = self.known(slot + "look", LOOKS)
            self.say((_a(look) if form == "a" else look) + " ")
            form = ""
        rows, used = ROWS[pool], [self.world[s]["number"] for s in self.world if SLOTS.get(s) == pool]
        if pool == "person" and slot not in self.world:  # first Mc or O', which X and Y do not share, then the name
            other = self.world.get({"X": "Ysex", "Y": "Xsex"}.get(slot, ""))
            sex = self.known(slot + "sex", [sex for sex in ("girl", "boy") if sex != other])
            if form == "girl":
                return self.say("a " + sex)
            rows = [row for row in rows if row["girl"] == sex]
        row = self.known(slot, [row for row in rows if row["number"] not in used])
        if form == "spot":
            return self.say(self.known(slot + "spot", row["spots"]))
        return self.say(row[form])


def _kept(world):
    """Is a story of this world for validation? The numbers of who, what and where then add up to a multiple of HELD."""
    what = next((slot for slot in world if slot in ("T", "U", "C")), "Y")
    return sum(world[slot]["number"] for slot in ("X", what, "P") if slot in world) % HELD == 0


def _generator(seed):
    """SplitMix64 (Steele, Lea, Flood 2014) as pick(n): each of range(n) is equally likely, to within n 2^-64."""
    state = seed

    def pick(n):
        nonlocal state
        state = state + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return (z ^ z >> 31) * n >> 64

    return pick


def stories(seed: int = 0) -> Iterator[tuple[str, float, bool]]:
    """Endless (text, nats, kept): nats is -ln of the story's probability; kept: is it for validation?"""
    draw = _generator(seed)
    while True:
        said: list[str] = []
        ways: list[int] = []  # how many choices there were

        def pick(n: int, ways: list[int] = ways) -> int:
            ways.append(n)
            return draw(n)

        story = Story(pick, said.append)
        yield "".join(said), math.fsum(map(math.log, ways)), _kept(story.world)


@lru_cache(maxsize=2)
def corpus(length: int = LENGTH, seed: int = 0) -> tuple[str, float]:
    """(text, nats): `length` characters, the first nine tenths of them from training stories and the rest from
    validation stories, whose combinations of who, what and where do not occur in training. nats: what a reader who
    knows the grammar, and sees each story from its beginning, needs for a character of the validation stories."""
    parts, sizes, nats, want = ([], []), [0, 0], [0.0, 0.0], (int(0.9 * length), length - int(0.9 * length))
    for text, cost, kept in stories(seed):
        if sizes[kept] < want[kept]:
            parts[kept].append(text)
            sizes[kept] += len(text)
            nats[kept] += cost
        elif sizes[not kept] >= want[not kept]:
            break
    return "".join(parts[0])[: want[0]] + "".join(parts[1])[: want[1]], nats[1] / sizes[1]
