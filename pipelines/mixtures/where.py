"""Check a mixture's `where`: it must be a function of the record, with the same value in every run and machine.

Only functions of an allow-list may occur. A new version of DuckDB may add others, and some functions run a query
that is given as a string. LIMIT, samples, windows, `first` and sums of fractions are refused, because they depend
on the order of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from ubert.schema.errors import UserError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED = _words("""
    ! !~~ !~~* % & && * ** + - ->> / // < <-> << <= <@ <> = != == > >= >> @ @> ^ ^@ __postfix | || ~ ~~ ~~*
    ~~~ !__postfix not_like_escape like_escape ilike_escape not_ilike_escape
    abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide
    even exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm
    least least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round
    round_even sign signbit sin sinh sqrt subtract tan tanh trunc xor
    ascii bar base64 bin bit_length char_length character_length chr concat concat_ws contains
    damerau_levenshtein decode editdist3 encode ends_with format format_bytes from_base64 from_binary from_hex
    hamming hash hex instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length
    length_grapheme levenshtein lower lpad ltrim md5 md5_number md5_number_lower md5_number_upper mismatches
    nfc_normalize octet_length ord overlay parse_dirname parse_dirpath parse_filename parse_path position
    prefix printf regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches
    regexp_replace regexp_split_to_array repeat replace reverse right right_grapheme rpad rtrim sha1 sha256
    split split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
    strip_accents strlen strpos substr substring substring_grapheme suffix to_base64 to_binary to_hex
    translate trim ucase unbin unhex unicode upper url_decode url_encode
    array_append array_apply array_cat array_concat array_contains array_distinct array_extract array_filter
    array_has array_has_all array_has_any array_indexof array_intersect array_length array_pop_back
    array_pop_front array_position array_prepend array_push_back array_push_front array_reduce array_resize
    array_reverse array_reverse_sort array_select array_slice array_sort array_to_string array_transform
    array_unique array_value array_where array_zip cardinality element_at flatten generate_series
    generate_subscripts grade_up list_append list_apply list_avg list_bool_and list_bool_or list_cat
    list_concat list_contains list_count list_distinct list_element list_extract list_filter list_grade_up
    list_has list_has_all list_has_any list_indexof list_intersect list_max list_median list_min list_pack
    list_position list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select
    list_slice list_sort list_string_agg list_sum list_transform list_unique list_value list_where list_zip
    range reduce unnest unpivot_list
    map map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
    map_from_entries map_keys map_values row struct_contains struct_extract struct_extract_at struct_has
    struct_indexof struct_insert struct_keys struct_pack struct_position struct_update struct_values
    json json_array json_array_length json_contains json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_keys json_object json_quote json_structure json_type
    json_valid json_value row_to_json to_json
    century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian
    last_day make_date make_time make_timestamp microsecond millennium millisecond minute month monthname
    quarter second strftime strptime time_bucket to_days to_hours to_milliseconds to_minutes to_months
    to_seconds to_weeks to_years try_strptime week weekday weekofyear year yearweek
    coalesce covered if ifnull nullif typeof
    bit_and bit_or bit_xor bool_and bool_or count count_if count_star countif max median min quantile
    quantile_disc
""")
VIEWS = _words("""
    records categories labels spans relations events arguments rejects mismatches files corpora duplicates
    contradictions leaks contamination
""")  # views over the mixture's corpora and over audits; the mixture's fingerprint covers both
_WORDS = _words("""
    current_catalog current_database current_date current_role current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
""")  # functions without parentheses, which look like columns
_CHOOSING = {"LIMIT_MODIFIER": "LIMIT", "DISTINCT_MODIFIER": "DISTINCT ON"}


MIXTURE = "a mixture must be the same each time it is drawn; to draw fewer records, use `cap` or `size`"


def one_condition(condition: str, where: str) -> str:
    """Parse a condition on its own, so that it can't end the clause in which it is used.

    Raises:
        UserError: it is not one SQL condition; the message begins with `where`.
    """
    try:
        parsed = duckdb.SQLExpression(condition)
        alone, name = str(parsed), parsed.get_name()  # an alias is not in `alone`, and is the name
        unnamed = duckdb.SQLExpression(alone).get_name()
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{where}: expected one SQL condition: {problem}") from None
    if name != unnamed:
        raise UserError(
            f"{where}: expected one SQL condition, but {name!r} at its end is an alias of {alone!r}; remove it"
        )
    return alone


def check(connection: duckdb.DuckDBPyConnection, condition: str, where: str, why: str = MIXTURE) -> None:
    """Check that a condition is a function of the record.

    Raises:
        UserError: the condition is not; the message begins with `where`, names what it uses, and ends with `why`.
    """
    [[tree]] = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {condition}"]).fetchall()
    parsed = json.loads(tree)
    if parsed["error"]:
        raise UserError(f"{where}: expected one SQL condition: {parsed['error_message']}")
    for node, known in _nodes(parsed):
        if found := _impurity(node, known):
            raise UserError(f"{where}: {found}, and {why}")


def _nodes(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield the nodes of parsed SQL, each with the tables in its scope. There is no recursion, as SQL may be
    deeply nested."""
    open_: list[tuple[Any, frozenset[str]]] = [(tree, VIEWS)]
    while open_:
        one, known = open_.pop()
        if isinstance(one, dict):
            known |= {entry["key"].lower() for entry in one.get("cte_map", {}).get("map", ())}
            yield one, known
            open_ += [(inner, known) for inner in one.values()]
        elif isinstance(one, list):
            open_ += [(inner, known) for inner in one]


def _impurity(node: dict[str, Any], known: frozenset[str]) -> str | None:
    """Describe why a node of parsed SQL isn't a function of the record; None if it is one."""
    kind = node.get("type")
    if node.get("class") == "WINDOW":
        return f"{node['function_name']} OVER depends on other rows, and perhaps on their order"
    if node.get("class") == "FUNCTION" and (name := node["function_name"].lower()) not in ALLOWED:
        return f"the function {name} is not among those whose value depends on the record alone"
    if node.get("class") == "COLUMN_REF" and (name := node["column_names"][-1].lower()) in _WORDS:
        return f"{name} differs from call to call"
    if kind == "BASE_TABLE" and (node["table_name"].lower() not in known or node["schema_name"]):
        views = ", ".join(sorted(VIEWS))
        return f"{node['table_name']} is not a view of records or of evidence, such as {views}"
    if kind == "SHOW_REF" or node.get("ref_type") == "POSITIONAL":
        return "SHOW, DESCRIBE, SUMMARIZE and POSITIONAL JOIN depend on more than the records"
    if kind in _CHOOSING and (kind != "DISTINCT_MODIFIER" or node["distinct_on_targets"]):
        return f"{_CHOOSING[kind]} chooses among rows whose order is not fixed"
    return "a sample differs from call to call" if node.get("sample") else None
