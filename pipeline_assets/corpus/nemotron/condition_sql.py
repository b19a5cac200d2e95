"""SQL conditions on a single row, evaluated as expressions of polars.

The SQL of polars can read files, URLs, other rows and the clock. Therefore polars never reads the text of a recipe:
sqlglot parses it. An expression consists only of constants, columns of the row, and the operators and functions listed
below. None of these functions can build a long text from a short one; `+` joins at most `_MAX_TERMS` texts.
"""

import difflib
import functools
import operator
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar

import polars as pl
from sqlglot import errors, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

_MAX_CHARACTERS = 65_536
_MAX_TERMS = 1_000  # nodes of the tree: columns, values, operators, calls
_MAX_DEPTH = 12  # sqlglot needs up to 24 of Python's 1,000 frames per level
_MAX_LITERAL_CHARACTERS = 1_000
_NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?|\.[0-9]{1,40}")
_CLOCK_NAMES = {"NOW", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"}
_CLOCK_ERROR = "the condition depends on the clock, so its rows would change from day to day"
_DEPTH_ERROR = f"a condition has at most {_MAX_DEPTH} nested levels"
SINGLE_ROW_RULE = "the condition must use the columns of a single row"


def _divide(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Divide; the result is null if the divisor is 0.

    polars would return NaN for 0 / 0, which it orders above all numbers, and an infinity for other dividends.
    """
    return pl.when(divisor != 0).then(dividend / divisor)


# Operators by class names of sqlglot nodes.
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Div": _divide,
    "EQ": operator.eq,
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
    "Mul": operator.mul,
    "NEQ": operator.ne,
    "Sub": operator.sub,
}


def _like_to_regex(pattern: str) -> str:
    return f"(?s)^{''.join({'%': '.*', '_': '.'}.get(char, re.escape(char)) for char in pattern)}$"


# Conversions of a quoted pattern to a regular expression.
_PATTERN_CONVERTERS: dict[str, Callable[[str], str]] = {
    "ILike": lambda pattern: f"(?i){_like_to_regex(pattern)}",
    "Like": _like_to_regex,
    "RegexpILike": "(?i){}".format,
    "RegexpLike": str,
}
# The precedence of comparisons and NOT differs between SQL dialects, so as operands of comparisons and arithmetic they
# need parentheses.
_COMPARISONS = {"Between", "EQ", "GT", "GTE", "ILike", "In", "Is", "LT", "LTE", "Like", "NEQ", "Not"}
_COMPARISONS |= {"RegexpILike", "RegexpLike"}
_ARITHMETIC = {"Add", "Div", "Mul", "Neg", "Sub"}
# Arguments that a node may have; others, such as the query of an IN, are not supported.
_NODE_ARGUMENTS = {"this", "expression", "expressions", "is_string", "quoted", "negate", "low", "high", "typed", "safe"}


def _contains(items: pl.Expr, item: pl.Expr) -> pl.Expr:
    """Check whether a list has an item; a null item gives null, as in SQL."""
    return pl.when(item.is_not_null()).then(items.list.contains(item))


SQL_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABS": lambda number: number.abs(),
    "ARRAY_CONTAINS": _contains,
    "ARRAY_LENGTH": lambda items: items.list.len().cast(pl.Int64),
    "CHAR_LENGTH": lambda text: text.str.len_chars().cast(pl.Int64),
    "COALESCE": pl.coalesce,
    "ENDS_WITH": lambda text, end: text.str.ends_with(end),
    "GREATEST": pl.max_horizontal,
    "LEAST": pl.min_horizontal,
    "LENGTH": lambda text: text.str.len_chars().cast(pl.Int64),
    "LOWER": lambda text: text.str.to_lowercase(),
    "OCTET_LENGTH": lambda text: text.str.len_bytes().cast(pl.Int64),
    "STARTS_WITH": lambda text, start: text.str.starts_with(start),
    "TRIM": lambda text: text.str.strip_chars(),
    "UPPER": lambda text: text.str.to_uppercase(),
}
"""Supported SQL functions by name, as functions of polars expressions.

Lengths are signed integers, because a difference of unsigned integers cannot be negative.
"""


class _ConditionDialect(Postgres):
    """Dialect in which all functions except ANY are plain calls.

    It extends Postgres, where `~` matches a pattern, as in polars.
    """

    class Tokenizer(Postgres.Tokenizer):
        IDENTIFIERS: ClassVar = ['"', "`"]
        COMMANDS: ClassVar = set()

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"ANY": PostgresParser.NO_PAREN_FUNCTION_PARSERS["ANY"]}
        STATEMENT_PARSERS: ClassVar = {}


def compile_condition(condition: str, frame: pl.DataFrame) -> pl.Expr:
    """Convert an SQL condition to a boolean expression of polars.

    The condition may use the columns of `frame`, whose only row serves to check types.

    Raises:
        ValueError: The condition cannot be parsed, is too large, uses anything unsupported, or is not boolean.
        PolarsError: Types cannot be compared, or a pattern is not a valid regular expression.
    """
    tree = _parse(condition)
    if sum(not isinstance(node, exp.Identifier) for node in tree.walk()) > _MAX_TERMS:
        raise ValueError(f"a condition has at most {_MAX_TERMS:,} columns, values, operators and calls")
    return _to_boolean_expression(tree, frame, 0)


def _parse(condition: str) -> exp.Expr:
    if len(condition) > _MAX_CHARACTERS:
        raise ValueError(f"a condition has at most {_MAX_CHARACTERS:,} characters, got {len(condition):,}")
    dialect = _ConditionDialect()
    try:
        _raise_if_too_deep([token.token_type.name for token in dialect.tokenize(condition)])
        trees = dialect.parse_into(exp.Condition, condition)
    except errors.ParseError as error:
        fault = error.errors[0] if error.errors else {}
        place = f" near {fault['highlight']!r:.60}" if fault.get("highlight") else ""
        raise ValueError(f"the condition is invalid ({fault.get('description') or 'no expression'}{place})") from None
    except RecursionError:
        raise ValueError(_DEPTH_ERROR) from None
    except errors.TokenError:
        raise ValueError("the condition is invalid (a quote or comment is not closed)") from None
    if len(trees) != 1 or trees[0] is None:
        raise ValueError("the condition is invalid (write one expression)")
    return trees[0]


def _raise_if_too_deep(token_types: Iterable[str]) -> None:
    """Raise ValueError if brackets or prefix operators nest too deep for the parser."""
    depth = prefixes = 0
    for token_type in token_types:
        prefixes = prefixes + 1 if token_type in ("NOT", "DASH", "PLUS", "RLIKE", "INTERVAL") else 0
        depth += token_type in ("L_PAREN", "L_BRACKET", "L_BRACE")
        depth -= token_type in ("R_PAREN", "R_BRACKET", "R_BRACE")
        if depth + prefixes > _MAX_DEPTH:
            raise ValueError(_DEPTH_ERROR)


def _to_boolean_expression(node: exp.Expr, frame: pl.DataFrame, depth: int) -> pl.Expr:
    expression: pl.Expr = _to_expression(node, frame, depth + 1)
    kind = frame.select(expression.alias("holds")).schema["holds"]
    if str(kind) != "Boolean":
        raise ValueError(f"the condition must be boolean, got a value of type {kind}")
    return expression


def _to_expression(node: exp.Expr, frame: pl.DataFrame, depth: int) -> Any:
    if depth > 2 * _MAX_DEPTH:
        raise ValueError(_DEPTH_ERROR)
    read = functools.partial(_to_expression, frame=frame, depth=depth + 1)
    truth = functools.partial(_to_boolean_expression, frame=frame, depth=depth)
    kind = type(node).__name__
    if isinstance(node, exp.Column):
        return _column(node, frame)
    _check_form(node)
    match node:
        case exp.Paren():
            return read(node.this)
        case exp.Literal(is_string=True) | exp.RawString():
            return pl.lit(_literal_text(node))
        case exp.Literal() if _NUMBER.fullmatch(node.this):
            return pl.lit(_number(node))
        case exp.Neg(this=exp.Literal(is_string=False)) if _NUMBER.fullmatch(node.this.this):
            return pl.lit(-_number(node.this))
        case exp.Boolean():
            return pl.lit(node.this)
        case exp.Null():
            return pl.lit(None)
        case exp.And():
            return pl.all_horizontal(*map(truth, node.flatten()))
        case exp.Or():
            return pl.any_horizontal(*map(truth, node.flatten()))
        case exp.Not():
            return ~truth(node.this)
        case exp.Neg():
            return -read(node.this)
        case exp.Is(expression=exp.Null()):
            expression = read(node.this).is_null()
        case exp.Is(expression=exp.Boolean()):  # never null, as in SQL
            expression = (truth(node.this) == pl.lit(node.expression.this)).fill_null(False)
        case exp.EQ(expression=exp.Any()):
            return _contains(read(node.expression.this), read(node.this))
        case exp.Between():
            value = read(node.this)
            return (value >= read(node.args["low"])) & (value <= read(node.args["high"]))
        case exp.In() if node.expressions:
            value = read(node.this)
            return pl.any_horizontal(*(value == read(item) for item in node.expressions))
        case exp.Anonymous():
            return _function_call(node, [read(argument) for argument in node.expressions])
        case _ if kind in _PATTERN_CONVERTERS:
            if not node.expression.is_string:
                rule = "a pattern of LIKE, ILIKE, ~ or ~* must be a text in quotes"
                raise ValueError(f"the condition is invalid ({rule})")
            expression = read(node.this).str.contains(_PATTERN_CONVERTERS[kind](_literal_text(node.expression)))
        case _ if kind in _OPERATORS:
            return _OPERATORS[kind](read(node.this), read(node.expression))
        case _:
            raise _unsupported_error(node)
    return ~expression if node.args.get("negate") else expression


def _check_form(node: exp.Expr) -> None:
    """Raise ValueError for unsupported arguments of a node, or missing parentheses."""
    if isinstance(node, exp.Alias):
        raise ValueError("the condition is invalid (CAST and AS are not supported); write one of docs/nemotron.md")
    arguments = [name for name, value in node.args.items() if value not in (None, False, [])]
    if unsupported := [name for name in arguments if name not in _NODE_ARGUMENTS]:
        raise _unsupported_error(node, unsupported[0])
    kind, operands = type(node).__name__, {type(operand).__name__ for operand in node.iter_expressions()}
    if kind != "Not" and kind in _COMPARISONS | _ARITHMETIC and operands & _COMPARISONS:
        raise ValueError("the condition is invalid (put parentheses around each operand that has its own operator)")


def _column(node: exp.Column, frame: pl.DataFrame) -> pl.Expr:
    name, columns = ".".join(part.name for part in node.parts), frame.columns
    if name.upper() in _CLOCK_NAMES:
        raise ValueError(_CLOCK_ERROR)
    if name not in columns:
        is_value = node.arg_key in ("expression", "expressions")  # right of an operator, or in a list
        hint = f"; write a text as '{name[:60]}', in single quotes" if is_value else ""
        raise ValueError(f"unknown column {name[:60]}{hint}{_describe_alternatives(name, columns, 'columns')}")
    # Products of 32-bit columns would wrap around.
    return pl.col(name).cast(pl.Int64) if frame.schema[name] == pl.Int32 else pl.col(name)


def _literal_text(node: exp.Expr) -> str:
    if len(node.this) > _MAX_LITERAL_CHARACTERS:
        raise ValueError(f"a quoted text has at most {_MAX_LITERAL_CHARACTERS:,} characters, got {len(node.this):,}")
    return str(node.this)


def _number(node: exp.Expr) -> int | float:
    return int(node.this) if node.this.isdigit() else float(node.this)


def _function_call(node: exp.Expr, arguments: list[pl.Expr]) -> Any:
    name = node.name.upper()
    if name in _CLOCK_NAMES:
        raise ValueError(_CLOCK_ERROR)
    if issubclass(exp.FUNCTION_BY_NAME.get(name, exp.Expr), exp.AggFunc):
        raise ValueError(SINGLE_ROW_RULE)
    if name not in SQL_FUNCTIONS:
        suggested = _describe_alternatives(name, SQL_FUNCTIONS, "functions")
        raise ValueError(f"the condition is invalid (unknown function {name[:60]}{suggested})")
    try:
        return SQL_FUNCTIONS[name](*arguments)
    except TypeError:
        raise ValueError(f"the condition is invalid (wrong number of arguments for {name})") from None


def _describe_alternatives(name: str, known_names: Collection[str], plural_noun: str) -> str:
    nearest = difflib.get_close_matches(name[:60], known_names, n=1)
    return f", did you mean {nearest[0]}?" if nearest else f"; {plural_noun}: {', '.join(sorted(known_names))}"


def _unsupported_error(node: exp.Expr, argument: str = "") -> ValueError:
    if isinstance(node, exp.Window | exp.Filter | exp.AggFunc | exp.Star):
        return ValueError(SINGLE_ROW_RULE)
    name = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper() + (f" with {argument}" if argument else "")
    return ValueError(f"the condition is invalid ({name} is not supported); write one of docs/nemotron.md")
