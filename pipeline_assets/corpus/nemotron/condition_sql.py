"""SQL of a condition on one row: parsed, checked and generated for polars.

The check is a whitelist. SQL of polars can read files, addresses, other rows and the clock. So polars never reads the
text of a recipe: sqlglot parses it, and only columns, operators and functions listed here are written out again, in
full parentheses.
"""

import difflib
import functools
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

_MAX_CHARACTERS = 65_536
_MAX_TERMS = 1_000  # nodes of the tree: columns, literals, operators, calls
_MAX_DEPTH = 12  # sqlglot needs up to 24 Python frames a level, of 1,000
_MAX_LITERAL = 1_000  # characters of a text
_MAX_JOINED = 8  # texts that CONCAT, CONCAT_WS and || join, in all: each may be as long as a row
_MAX_SEPARATOR = 8  # characters between the joined items of a list
_NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?|\.[0-9]{1,40}")
_CLOCK = {"NOW", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"}
_TOO_DEEP = f"a condition has at most {_MAX_DEPTH} nested levels"
_CLOCK_USED = "it asks the clock, and rows would be others tomorrow"
NOT_OF_ONE_ROW = "it isn't about one row: write it over the columns of a row alone"
# Functions of polars' SQL that read one row, and whose results are at most as long as their arguments together.
FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        ABS ARRAY_CONTAINS ARRAY_GET ARRAY_LENGTH ARRAY_TO_STRING BIT_LENGTH CHARACTER_LENGTH CHAR_LENGTH COALESCE
        CONCAT CONCAT_WS DIV ENDS_WITH GREATEST IF IFNULL INITCAP LEAST LEFT LENGTH LOWER LTRIM MOD NULLIF OCTET_LENGTH
        REGEXP_LIKE REPLACE REVERSE RIGHT ROUND RTRIM STARTS_WITH SUBSTR SUBSTRING TRIM UPPER
        """,
    )
)
_USES = {
    "ARRAY_TO_STRING": f"ARRAY_TO_STRING(list, ', ') needs a quoted separator of at most {_MAX_SEPARATOR} characters",
    "REGEXP_LIKE": "REGEXP_LIKE(text, 'pattern') needs a quoted pattern",
    "REPLACE": "REPLACE(text, 'old', 'new') needs two quoted texts, the new one not longer than the old one",
}
# Operators by sqlglot's names of their nodes, and types by sqlglot's names.
_OPERATORS = {
    "Add": "+",
    "DPipe": "||",
    "Div": "/",
    "EQ": "=",
    "GT": ">",
    "GTE": ">=",
    "ILike": "ILIKE",
    "IntDiv": "//",
    "LT": "<",
    "LTE": "<=",
    "Like": "LIKE",
    "Mod": "%",
    "Mul": "*",
    "NEQ": "<>",
    "RegexpILike": "~*",
    "RegexpLike": "~",
    "Sub": "-",
}
_TYPES = {
    "BIGINT": "BIGINT",
    "BOOLEAN": "BOOLEAN",
    "CHAR": "VARCHAR",
    "DATE": "DATE",
    "DECIMAL": "DECIMAL",
    "DOUBLE": "DOUBLE",
    "FLOAT": "REAL",
    "INT": "INT",
    "SMALLINT": "SMALLINT",
    "TEXT": "VARCHAR",
    "TIMESTAMP": "TIMESTAMP",
    "TINYINT": "TINYINT",
    "VARCHAR": "VARCHAR",
}
# SQL dialects group these differently where one is an operand of another operator than AND, OR and NOT.
_COMPARISONS = {"Between", "EQ", "GT", "GTE", "ILike", "In", "Is", "LT", "LTE", "Like", "NEQ", "Not"}
_COMPARISONS |= {"RegexpILike", "RegexpLike"}
_ARITHMETIC = {"Add", "Div", "IntDiv", "Mod", "Mul", "Neg", "Sub"}
# By node: operands that need parentheses.
_NEEDS_PARENTHESES = {
    **dict.fromkeys(_COMPARISONS - {"Not"}, _COMPARISONS),
    **dict.fromkeys(_ARITHMETIC, _COMPARISONS | {"DPipe"}),
    "DPipe": _COMPARISONS | _ARITHMETIC,
}
# Parts that a node may have, in addition to parts that the dialect itself sets; other parts are not supported.
_PARTS = {"this", "expression", "expressions", "is_string", "quoted"}
_MORE_PARTS = {
    "Between": {"low", "high"},
    "Bracket": {"offset"},
    "Case": {"ifs", "default"},
    "Cast": {"to"},
    "DPipe": {"safe"},
    "Div": {"typed", "safe"},
    "ILike": {"negate"},
    "Is": {"negate"},
    "Like": {"negate"},
    "TryCast": {"to", "safe"},
}


def row_sql(condition: str, columns: Collection[str]) -> str:
    """Generate the SQL that polars reads for a condition.

    Args:
        columns: names that the condition may use.
    Raises:
        ValueError: the condition can't be parsed, is too large, or uses anything that isn't listed here.
    """
    return _Writer(columns).write(_parse(condition))


def _parse(condition: str) -> "exp.Expr":
    from sqlglot import errors, exp

    if len(condition) > _MAX_CHARACTERS:
        raise ValueError(f"a condition has at most {_MAX_CHARACTERS:,} characters, got {len(condition):,}")
    dialect = _dialect()
    try:
        _limit_depth([token.token_type.name for token in dialect.tokenize(condition)])
        trees = dialect.parse_into(exp.Condition, condition)
    except errors.ParseError as error:
        fault = error.errors[0] if error.errors else {}
        place = f" near {fault['highlight']!r:.60}" if fault.get("highlight") else ""
        raise ValueError(f"it can't be asked ({fault.get('description') or 'no expression'}{place})") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except errors.TokenError:
        raise ValueError("it can't be asked (a quote or comment is not closed)") from None
    if len(trees) != 1 or trees[0] is None:
        raise ValueError("it can't be asked (write one expression)")
    return trees[0]


@functools.cache
def _dialect() -> "Dialect":
    """Return a Postgres dialect that keeps function names as written.

    Its `~` matches a pattern as in polars.
    """
    from sqlglot.dialects.postgres import Postgres
    from sqlglot.parsers.postgres import PostgresParser
    from sqlglot.tokenizer_core import TokenType

    calls = {name: PostgresParser.FUNCTION_PARSERS[name] for name in ("CAST", "SAFE_CAST", "TRY_CAST")}
    words = {name: PostgresParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE")}
    parser = {"FUNCTIONS": {}, "FUNCTION_PARSERS": calls, "NO_PAREN_FUNCTION_PARSERS": words, "STATEMENT_PARSERS": {}}
    keywords = {**Postgres.Tokenizer.KEYWORDS, "//": TokenType.DIV}
    tokenizer = {"KEYWORDS": keywords, "IDENTIFIERS": ['"', "`"], "COMMANDS": set()}
    members = {
        "INDEX_OFFSET": 0,
        "Tokenizer": type("Tokenizer", (Postgres.Tokenizer,), tokenizer),
        "Parser": type("Parser", (PostgresParser,), parser),
    }
    dialect: Dialect = type("Conditions", (Postgres,), members)()
    return dialect


def _limit_depth(tokens: Iterable[str]) -> None:
    """Count open brackets, CASE and prefix operators before the parser recurses."""
    depth = prefixes = 0
    for token in tokens:
        prefixes = prefixes + 1 if token in ("NOT", "DASH", "PLUS", "RLIKE", "INTERVAL") else 0
        depth += (token in ("L_PAREN", "L_BRACKET", "L_BRACE", "CASE")) - (
            token in ("R_PAREN", "R_BRACKET", "R_BRACE", "END")
        )
        if depth + prefixes > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)


class _Writer:
    """SQL of one tree, and how much of its limits the tree has used."""

    def __init__(self, columns: Collection[str]) -> None:
        self._columns = columns
        self._terms = 0
        self._joined = 0
        self._depth = 0

    def write(self, node: "exp.Expr") -> str:
        """Write a node in parentheses.

        Raises:
            ValueError: the node isn't supported, or is nested too deep.
        """
        self._depth += 1
        if self._depth > 2 * _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        sql = self._sql(node)
        self._depth -= 1
        return sql

    def _sql(self, node: "exp.Expr") -> str:
        from sqlglot import exp

        self._terms += 1
        if self._terms > _MAX_TERMS:
            raise ValueError(f"a condition has at most {_MAX_TERMS:,} columns, values, operators and calls")
        if isinstance(node, exp.Column):
            return self._column(node)
        kind = type(node).__name__
        parts = {part for part, value in node.args.items() if value not in (None, False, [])}
        if unsupported := parts - _PARTS - _MORE_PARTS.get(kind, set()):
            raise _not_supported(node, min(unsupported))
        loose = _NEEDS_PARENTHESES.get(kind, set())
        if any(type(operand).__name__ in loose for operand in node.iter_expressions()):
            raise ValueError("it can't be asked (put parentheses around each operand that has an operator of its own)")
        match node:
            case exp.Paren():
                return self.write(node.this)
            case exp.Literal(is_string=True) | exp.RawString():
                return _quoted_text(node.this)
            case exp.Literal() if _NUMBER.fullmatch(node.this):
                return str(node.this)
            case exp.Boolean():
                return "TRUE" if node.this else "FALSE"
            case exp.Null():
                return "NULL"
            case exp.And() | exp.Or():
                return _balanced([self.write(part) for part in node.flatten()], kind.upper())
            case exp.Not():
                return f"(NOT {self.write(node.this)})"
            case exp.Neg():
                return f"(- {self.write(node.this)})"
            case exp.Is(expression=exp.Null() | exp.Boolean()):
                word = "IS NOT" if node.args.get("negate") else "IS"
                test = f"({self.write(node.this)} {word} {self.write(node.expression)})"
                if isinstance(node.expression, exp.Null):
                    return test
                # In SQL the answer is never null; in polars it is, where the value is null.
                return f"COALESCE({test}, {'TRUE' if node.args.get('negate') else 'FALSE'})"
            case exp.EQ(expression=exp.Any()):
                return f"({self.write(node.this)} = ANY({self.write(node.expression.this)}))"
            case exp.Between():
                low, high = self.write(node.args["low"]), self.write(node.args["high"])
                return f"({self.write(node.this)} BETWEEN {low} AND {high})"
            case exp.In() if node.expressions:
                return f"({self.write(node.this)} IN ({self._all(node.expressions)}))"
            case exp.Bracket(expressions=[index]):
                return f"{self.write(node.this)}[{self.write(index)}]"
            case exp.Case():
                return self._case(node)
            case exp.Cast() if type_name := _type_name(node.to):
                word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
                return f"{word}({self.write(node.this)} AS {type_name})"
            case exp.Anonymous():
                return self._call(node)
            case exp.Binary() if kind in _OPERATORS:
                return self._binary(node, _OPERATORS[kind])
        raise _not_supported(node)

    def _all(self, nodes: Iterable["exp.Expr"]) -> str:
        return ", ".join(map(self.write, nodes))

    def _column(self, node: "exp.Column") -> str:
        if node.name.upper() in _CLOCK:
            raise ValueError(_CLOCK_USED)
        name = ".".join(part.name for part in node.parts)
        if name not in self._columns:
            raise ValueError(f"there is no column {name[:60]}{_nearest(name, self._columns, 'columns')}")
        return f'"{name}"'

    def _binary(self, node: "exp.Expr", operator: str) -> str:
        from sqlglot import exp

        if operator in ("~", "~*", "LIKE", "ILIKE") and not isinstance(node.expression, exp.Literal):
            raise ValueError(f"it can't be asked (a pattern of {operator} must be a text in quotes)")
        if operator == "||":
            self._join(1)
        negated = "NOT " if node.args.get("negate") else ""
        return f"({self.write(node.this)} {negated}{operator} {self.write(node.expression)})"

    def _case(self, node: "exp.Expr") -> str:
        branches = [f"WHEN {self.write(part.this)} THEN {self.write(part.args['true'])}" for part in node.args["ifs"]]
        value = f" {self.write(node.this)}" if node.this else ""
        default = f" ELSE {self.write(node.args['default'])}" if node.args.get("default") else ""
        return f"(CASE{value} {' '.join(branches)}{default} END)"

    def _call(self, node: "exp.Expr") -> str:
        from sqlglot import exp

        name, arguments = node.name.upper(), node.expressions
        if name in _CLOCK:
            raise ValueError(_CLOCK_USED)
        if issubclass(exp.FUNCTION_BY_NAME.get(name, exp.Expr), exp.AggFunc):
            raise ValueError(NOT_OF_ONE_ROW)
        if name not in FUNCTIONS:
            raise ValueError(f"it can't be asked (no function {name[:60]}{_nearest(name, FUNCTIONS, 'functions')})")
        texts = [part.this if isinstance(part, exp.Literal) else None for part in arguments]
        match name, texts:
            case (("CONCAT" | "CONCAT_WS"), _):
                self._join(len(arguments) - 1)
            case ("REPLACE", [_, str(old), str(new)]) if len(new) <= len(old):
                pass
            case ("ARRAY_TO_STRING", [_, str(separator)]) if len(separator) <= _MAX_SEPARATOR:
                pass
            case ("REGEXP_LIKE", [_, str(), *_]):
                pass
            case _ if name in _USES:
                raise ValueError(f"it can't be asked ({_USES[name]})")
        return f"{name}({self._all(arguments)})"

    def _join(self, texts: int) -> None:
        self._joined += texts
        if self._joined >= _MAX_JOINED:
            raise ValueError(f"a condition joins at most {_MAX_JOINED} texts")


def _balanced(operands: list[str], operator: str) -> str:
    """Join a chain as a balanced tree: polars needs cubic time for a flat one."""
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    return f"({_balanced(operands[:middle], operator)} {operator} {_balanced(operands[middle:], operator)})"


def _quoted_text(text: str) -> str:
    if len(text) > _MAX_LITERAL:
        raise ValueError(f"a quoted text has at most {_MAX_LITERAL:,} characters, got {len(text):,}")
    return "'" + text.replace("'", "''") + "'"


def _type_name(node: "exp.Expr") -> str | None:
    """Return polars' name of a type; None if not supported.

    Lengths of texts have no effect in polars.
    """
    name = _TYPES.get(str(node.this.value))
    return name if name == "VARCHAR" or not node.expressions else None


def _nearest(name: str, known: Collection[str], what: str) -> str:
    nearest = difflib.get_close_matches(name[:60], known, n=1)
    return f", did you mean {nearest[0]}?" if nearest else f"; {what}: {', '.join(sorted(known))}"


def _not_supported(node: "exp.Expr", part: str = "") -> ValueError:
    from sqlglot import exp

    if isinstance(node, exp.Window | exp.Filter | exp.AggFunc | exp.Star):
        return ValueError(NOT_OF_ONE_ROW)
    name = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper() + (f" with {part}" if part else "")
    return ValueError(
        f"it can't be asked ({name} is not supported; operators: {' '.join(sorted(_OPERATORS.values()))})"
    )
