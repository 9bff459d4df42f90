"""Random programs over the alphabet ab, of every construct, well typed."""

import numpy as np

ALPHABET = "ab"
MASKS = ("true", "j<=i", "j<i", "j>=i", "j>i")


class Writer:
    """Writes definitions one after another and remembers the names of each type."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)
        # Integers of a constant range may be summed, the others may not.
        self.names = {"bool": [], "small": [], "int": ["pos"], "symbol": ["in"]}
        self.sums = 0

    def pick(self, options):
        return options[int(self.draw.integers(len(options)))]

    def name(self, kind, mark=""):
        if kind == "int" and self.draw.random() < 0.5 and self.names["small"]:
            kind = "small"
        return self.pick(self.names[kind]) + mark

    def boolean(self, mark="", depth=2):
        case = int(self.draw.integers(8 if depth else 4))
        if case == 0 and self.names["bool"]:
            return self.name("bool", mark)
        if case <= 1:
            return f"{self.name('symbol', mark)} = '{self.pick('ab')}'"
        if case == 2:
            return f"{self.name('symbol', mark)} = {self.name('symbol', mark)}"
        if case == 3:
            operator = self.pick(("=", "!=", "<", "<=", ">", ">="))
            return f"{self.integer(mark)} {operator} {self.integer(mark)}"
        one = f"({self.boolean(mark, depth - 1)})"
        if case == 4:
            return f"not {one}"
        other = f"({self.boolean(mark, depth - 1)})"
        if case == 5:
            return f"if {one} then {other} else ({self.boolean(mark, depth - 1)})"
        return f"{one} {self.pick(('and', 'or', '='))} {other}"

    def integer(self, mark="", kind="int"):
        if kind == "small" and not self.names["small"]:
            return str(self.draw.integers(-2, 3))
        if self.draw.random() < 0.2:
            return str(self.draw.integers(-2, 3))
        first = self.name(kind, mark)
        if self.draw.random() < 0.5:
            return first
        second = self.name(kind, mark)
        if self.names["bool"] and self.draw.random() < 0.3:
            second = self.name("bool", mark)
        return f"({self.pick(('', '-', '2 * '))}{first} {self.pick('+-')} {second})"

    def predicate(self):
        case = int(self.draw.integers(7))
        if case == 0:
            return "true"
        if case == 1:
            return self.boolean("(j)", 1)
        if case == 2:
            return f"{self.integer('(i)')} = {self.name('int', '(j)')}"
        if case == 3:
            return f"{self.name('symbol', '(j)')} = {self.name('symbol', '(i)')}"
        both = f"({self.boolean('(i)', 0)}) {{}} ({self.boolean('(j)', 0)})"
        if case == 4:
            return both.format(self.pick(("and", "or", "=")))
        if case == 5:
            equal = f"{self.name('int', '(j)')} = {self.name('int', '(i)')}"
            return f"{equal} and {self.boolean('(j)', 0)}"
        return f"not ({both.format('and')}) or ({self.boolean('(i)', 0)})"

    def lookup(self, value, default):
        side = self.pick(("right_j", "left_j"))
        return f"{side}[{self.pick(MASKS)}, {self.predicate()}] ({value}) : ({default})"

    def definition(self):
        case = int(self.draw.integers(7))
        if case == 0:
            return "bool", self.boolean()
        if case == 1:
            return "bool", self.lookup(self.boolean("(j)", 0), self.boolean("", 0))
        if case == 2:
            value = f"{self.name('symbol', '(j)')}"
            default = self.pick((self.name("symbol"), "'#'", "'a'"))
            return "symbol", self.lookup(value, default)
        if case == 3:
            condition = self.boolean("", 1)
            kind = self.pick(("small", "int"))
            one, other = self.integer(kind=kind), self.integer(kind=kind)
            return kind, f"if {condition} then {one} else {other}"
        if case == 4:
            kind = self.pick(("small", "int"))
            return kind, self.lookup(self.integer("(j)", kind), self.integer("", kind))
        if case == 5 and self.sums < 2:
            self.sums += 1
            one = self.pick((f"({self.boolean('', 1)})", self.integer(kind="small")))
            return "int", f"psum[j<=i] ({one} - ({self.boolean('', 0)}))"
        return "small", f"({self.boolean('', 1)}) - ({self.boolean('', 1)})"


def random_program(seed, definitions=4):
    """The text of a program whose result is its last definition."""
    writer = Writer(seed)
    lines = []
    for number in range(definitions):
        kind, expression = writer.definition()
        name = f"x{number}"
        lines.append(f"{name} = {expression}")
        writer.names[kind].append(name)
    return "\n".join([*lines, f"return x{definitions - 1}"])
