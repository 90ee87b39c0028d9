"""The default text: very short stories, drawn from a grammar of our own, the same on every Python and machine.

    text, nats = corpus(1_000_000)    # 900,000 characters to train on, then 100,000 for validation

A story is drawn by choices, each among as many as the state of its small world allows: who is there, and who has what.
All have the same chance, so the probability of a story is the product of 1/n over its choices, known
exactly, and no model can need fewer nats on average than the stories do.

What heads can find: names, things and places that return. A person is a Mc, who is "she", or an O', who is "he". So
what stands before the first letter of a name stands before no other word, and a head can look for it: where names
begin after a space, like all words, small models do not learn in two minutes to copy one that they have read.

In GRAMMAR, `name: line | line` are the lines of a rule, one of which is drawn; lines go on below. `<name>` is a line of
another rule, [a|b] one of the two, / a new line of the story. A line that begins with "Y?" is for stories in which
there is a Y already. A capital is a slot, filled with a row of LEXICON that stays the same in a story; X.she is a form
of X's row, and X.She or <Day> the same with a capital. A and I are words."""

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

__all__ = ["corpus", "stories"]

HELD = 10  # every tenth combination of person, thing and place is kept for validation
LENGTH = 1_000_000  # characters of the default text
SLOTS = dict(X="person", Y="person", Z="person", C="animal", T="thing", U="thing", V="thing", P="place", Q="place")
LOOKS = ["red", "blue", "green", "yellow", "white", "old", "new", "little"]
LEXICON = """
person girl she her him
McAdam/McCall/McDuff/McGee/McKay/McLean/McNab/McPhee: girl, she, her, her
O'Brien/O'Flynn/O'Hara/O'Malley/O'Riley/O'Shea/O'Toole/O'Whelan: boy, he, his, him
thing used
ball: threw it | cup: drank from it | drum: beat it | flute: played it | hat: wore it | jug: filled it | kite: flew it
lamp: lit it | map: looked at it | net: fished with it | pen: wrote with it | quilt: slept under it | ring: wore it
spade: dug with it | top: spun it | whistle: blew it
animal
bear/cat/dog/fox/goat/hen/mouse/owl/pig/rabbit
place air spot spot spot
in the attic: dust danced in the light, behind a trunk, under a sheet, in a corner
in the barn: it smelled of hay, in the straw, behind a cart, under a sack
at the castle: a flag flew, behind a door, under an arch, on the wall
in the forest: the leaves rustled, under an oak, by a stream, on the moss
in the garden: the bees hummed, under a bush, by the roses, behind the pump
at the harbour: the gulls cried, under a net, behind a crate, on a ship
in the kitchen: soup was cooking, under the table, by the oven, on a shelf
in the meadow: the grass was high, in the clover, by a fence, behind a haystack
by the pond: the frogs sang, in the reeds, on a flat stone, under a willow
by the river: the water ran by, on the bank, under a root, behind a boat
in the wood: a bird sang, under a fern, in a hollow tree, behind a log
in the yard: the gate creaked, under a tub, behind the shed, by the well
"""
GRAMMAR = """
story: <open> <spot>/<whose> <end> | <have> <gone>/<search>/<found> <end> | <send>/<way>/<there> <end>
<box>/<guess>/<lid> <end> | <roll>/<mine>/<turns> <end> | <hello>/<come>/<play> <end> | <where>/<call>/<here> <end>
<move>/<ask> <end>
day: one day | one morning | one evening | on Sunday
parent: mother | father | sister
went: went | ran
said: said | cried
thanks: thank you | how kind you are
nice: how pretty | I like it
long: all day | every day | until dark
open: <Day>, X <went> P.to.[| P.Air.] | X was [playing|sitting] P.in.
X.s <parent> sent X.him P.to <day>. | Once there was X.girl named X, and X.she lived P.near.
spot: There X.she found T.a P.spot. | X.She looked P.spot and found T.a. | "What is that P.spot?" asked X. It was T.a.
whose: "Is this your T?" X asked Y. "Yes," said Y. "I lost it <day>." | X took it home, and X.she T.used <long>.
"Whose T is this?" asked X. "It is Z.s," said Y. So X took it to Z. "<Thanks>, X," <said> Z.
"Where did you find it?" asked X.s <parent>. "P.In," said X, "P.spot."
have: X had T.a. X.She T.used <long>. | Y gave X T.a. X T.used <long>.
"Look at my T.full," said X to Y. "<Nice>," said Y.
gone: But <day> the T was gone. | <Day> X took it P.to. Then the T was gone.
search: X looked [under the bed|behind the door|Q.in], but it was not there. | X was sad. Where was X.her T?
"Have you seen my T?" X asked Z. "No," said Z, "but I will help you."
found: At last X.she looked P.in. There it was, P.spot! | "Here it is!" <said> Y. "Your T was P.in, P.spot!"
P.In X met C.a. It had X.her T in its mouth! "<Thanks>, C," said X.
send: "Please take this T.full to Y," said X.s <parent>. Y lived P.near. | X had T.a for Y, who lived P.near.
Y was sad, so X took Y.him T.a. Y lived P.near.
way: On the way X.she met C.a. "Where are you going?" it asked. "To Y," said X. "I have T.a for Y.him."
On the way X.she met Z. "What is that?" asked Z. "T.A for Y," said X. | Q.In X sat down. C.A came and sat with X.him.
there: "T.A!" <said> Y. "<Thanks>, X." | "Is this T for me?" asked Y. And Y.she T.used <long>.
box: Y had a box. "What is in it?" asked X P.in. | Y brought X a box P.to. "What is in it?" asked X.
guess: "Is it U.a?" asked X. "No," said Y. | "Open it," said Y.
lid: In it was T.a. X and Y T.used <long>. | "T.A!" <said> X. And X.she T.used <long>.
It was T.a. "What was in the box?" asked Z <day>. "T.A," said X.
roll: X, Y and Z were P.in. X had T.a, Y had U.a, and Z had V.a.
X had T.a, Y had U.a, and Z had V.a. They <went> P.to.
mine: "I have T.a," said X. "I have U.a," said Y. "And I have V.a," said Z. | "Let us play," said X. "Yes, X," said Y.
turns: X T.used. Y U.used. Z V.used. | First X T.used, then Y U.used, then Z V.used. | Z V.used. Y U.used. And X T.used.
hello: P.In X met Y. "I am X," said X. "I am Y," said Y.
"Who are you?" Y asked X P.in. "I am X. And you?" "I am Y," said Y.
come: "Look, Y, I have T.a," said X. "<Nice>, X," said Y. | X had T.a. "Is this your T, X?" asked Y. "Yes, Y," said X.
play: First X T.used. Then Y T.used. | "Here, Y," said X. So Y T.used. | Y T.used, and X sang.
where: "Where is X?" Y asked Z. "X is P.in," said Z. | Y looked for X. "X has T.a," said Z. "X is P.in."
call: So Y <went> P.to. "X! X!" <said> Y. | Y <went> P.to. "X, where are you?" <said> Y.
here: There was X, P.spot. X had T.a. | "Here I am, Y!" <said> X. X was P.spot and had T.a.
move: X put X.her T.full P.in. Then X.she went home. Y took it Q.to.
X left X.her T.full P.in. Y found it and took it Q.to.
ask: X looked P.in. No T! "Where is my T?" asked X. "Q.In," said Y.
Where did X look for the T? P.In. But it was Q.in! | "Is my T P.in?" asked X. "No," said Y, "it is Q.in."
end: X went home happy. | "What a [good|fine] day," said X. | That night X slept well.
X told X.her <parent> everything.
Y? X and Y [went home|laughed|sang] together. | Y? From then on X and Y were good friends.
P? X never forgot that day P.in. | P? P.Air, and X went home. | T? That night X dreamed of the T.
"""
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
