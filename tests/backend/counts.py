"""What can be counted of a kernel without a GPU, beside a budget: a file that says what was counted before.

    python -m tests.backend.counts --table [BUDGET.json]    the counts of sass_budget.json, beside those of another file

test_sass.py counts instructions, test_accesses.py what warps ask of memory. Run as programs, they write the budget.
"""

import argparse
import functools
import json
from pathlib import Path

BUDGET = Path(__file__).with_name("sass_budget.json")
PRODUCTS = "matmul", "attention_forward", "attention_backward"  # files whose inner loops multiply matrices
WIDTHS = "ldg", "stg", "lds", "sts"


@functools.cache
def budget(path=BUDGET):
    """{"nvrtc": its version, "sass": {file: {entry: {arch: counts}}}, "launches": {problem: {entry: counts}}}"""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def per(row, what, of):
    return row[what] / row[of] if row.get(of) else 0.0


def share(row):
    return per(row, "fma", "instructions")


def loaded(row):
    return sum(int(width) * count for width, count in row["ldg"].items())


def effort(row):
    """Instructions for each byte loaded from global memory."""
    return row["instructions"] / loaded(row) if loaded(row) else 0.0


def mean_width(row, what):
    return sum(int(width) * count for width, count in row[what].items()) / max(1, sum(row[what].values()))


def worse(file, was, now, slack=0.01):
    """[what has become worse] from one count of instructions to another, by more than `slack`, which is a share."""
    found = []
    if file.split()[0] in PRODUCTS and was["fma"]:
        if share(now) < share(was) - slack:
            found.append(f"{share(now):.3f} of its instructions multiply and add, of {share(was):.3f}")
    elif effort(now) > effort(was) * (1 + slack) and loaded(was):
        found.append(f"{effort(now):.2f} instructions for a byte loaded, of {effort(was):.2f}")
    for what in WIDTHS:
        before, after = mean_width(was, what), mean_width(now, what)
        if after < before * (1 - slack) and now[what]:
            found.append(f"{what.upper()} of {after:.1f} bytes, of {before:.1f}")
    for what in ("barriers", "divisions"):
        if now[what] > was[what]:
            found.append(f"{now[what]} {what}, of {was[what]}")
    if -(-now["registers"] // 8) > -(-was["registers"] // 8) + (slack > 0.01):
        found.append(f"{now['registers']} registers, of {was['registers']}")
    return found


ACCESSES = {
    "loaded": "bytes loaded from global memory",
    "stored": "bytes stored to global memory",
    "sectors": "times as many sectors of global memory as needed",
    "shared": "bytes loaded from shared memory",
    "load_conflicts": "extra cycles for a load from shared memory",
    "store_conflicts": "extra cycles for a store to shared memory",
}  # of a launch, for each element of the problem or for each access; fewer are better


def worse_accesses(was, now):
    """[what has become worse] from one count of accesses to another, by more than a rounding."""
    return [
        f"{now[what]:g} {meaning}, of {was[what]:g}"
        for what, meaning in ACCESSES.items()
        if now[what] > was[what] * 1.01 + 0.005
    ]


# ---------------------------------------------------------------------------------------------------- the file itself

ABOUT = "what a kernel's hottest loops contain, by architecture, and what launches ask of memory: see counts.py"


def write(part, rows, nvrtc):
    """Puts rows in the place of the budget's part ("sass" or "launches"), and prints what that changes."""
    all_parts = {"sass": {}, "launches": {}} | (budget() if BUDGET.exists() else {})
    before, all_parts[part] = flat(all_parts[part]), rows
    for name, row in flat(rows).items():
        if row != before.pop(name, None):
            print(f"{name}: {json.dumps(row)}")
    for name in before:
        print(f"{name}: gone")
    body = ",\n".join(f" {json.dumps(each)}: {_lines(all_parts[each])}" for each in ("sass", "launches"))
    text = f'{{"about": {json.dumps(ABOUT)},\n "nvrtc": {json.dumps(nvrtc)},\n{body}}}\n'
    BUDGET.write_text(text, encoding="utf-8")


def flat(rows):
    """{"file, entry, arch": counts} of what is nested."""
    if any(not isinstance(row, dict) for row in rows.values()) or "ldg" in rows:
        return {"": rows}
    return {f"{name}, {rest}".rstrip(", "): row for name in rows for rest, row in flat(rows[name]).items()}


def _lines(rows, depth=2):
    """JSON with a line for each row of counts."""
    names = sorted(rows)
    parts = [
        f"{' ' * depth}{json.dumps(name, ensure_ascii=False)}: "
        + (json.dumps(rows[name]) if "" in flat(rows[name]) else _lines(rows[name], depth + 1))
        for name in names
    ]
    return "{\n" + ",\n".join(parts) + "}"


COLUMNS = {  # of the table: what is shown of counts of instructions
    "FMA": lambda row: f"{share(row):.3f}",
    "instr./byte": lambda row: f"{effort(row):.2f}",
    **{what.upper(): lambda row, what=what: f"{mean_width(row, what):.1f}" for what in ("ldg", "lds", "sts")},
    **{what: lambda row, what=what: str(row[what]) for what in ("divisions", "barriers", "registers")},
}
LAUNCH_COLUMNS = {what: lambda row, what=what: f"{row[what]:g}" for what in ACCESSES}


def table(before, now):
    """Lines of text: the counts of each kernel and launch, and before them those of another budget if they differ."""
    lines = []
    for part, columns in (("sass", COLUMNS), ("launches", LAUNCH_COLUMNS)):
        lines += ["", part.ljust(60) + "".join(name.rjust(17) for name in columns)]
        old, new = flat(before[part]), flat(now[part])
        for name, row in new.items():
            lines.append(name.ljust(60) + "".join(_cell(show, old.get(name), row) for show in columns.values()))
        lines += [f"{name}: gone" for name in old if name not in new]
    return lines[1:]


def _cell(show, was, row):
    now = show(row)
    return (now if was is None or show(was) == now else f"{show(was)} → {now}").rjust(17)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", nargs="?", const=BUDGET, metavar="BUDGET", help="another budget, to compare with")
    print("\n".join(table(budget(parser.parse_args().table or BUDGET), budget())))


if __name__ == "__main__":
    main()
