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
    """{"about": …, "nvrtc": its version, "sass": {file: {entry: {arch: counts}}}, "launches": {problem: {entry: counts}}}"""
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
    """[what has become worse] from one count of instructions to another, by more than a rounding: a share of `slack`."""
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


def table(before, now):
    """Lines of text: each kernel's counts, and in front of them those of another budget where they differ."""
    lines = [
        f"{'kernel':64} {'FMA':>13} {'instr./byte':>15} {'LDG':>11} {'LDS':>11} {'STS':>11} {'div':>7} {'regs':>9}"
    ]

    def both(function, form, width):
        parts = [format(function(row), form) if row else "" for row in (was, row_now)]
        return (parts[1] if parts[0] in ("", parts[1]) else f"{parts[0]} → {parts[1]}").rjust(width)

    old = flat(before["sass"])
    for name, row_now in flat(now["sass"]).items():
        was = old.get(name)
        lines.append(
            f"{name:64} {both(share, '.3f', 13)} {both(effort, '.2f', 15)}"
            + "".join(
                f" {both(lambda row, what=what: mean_width(row, what), '.1f', 11)}" for what in ("ldg", "lds", "sts")
            )
            + f" {both(lambda row: row['divisions'], 'd', 7)} {both(lambda row: row['registers'], 'd', 9)}"
        )
    lines += ["", f"{'launch':64} " + " ".join(f"{what:>15}" for what in ACCESSES)]
    old = flat(before["launches"])
    for name, row_now in flat(now["launches"]).items():
        was = old.get(name)
        lines.append(f"{name:64} " + " ".join(both(lambda row, what=what: row[what], ".4g", 15) for what in ACCESSES))
    gone = [name for part in ("sass", "launches") for name in flat(before[part]) if name not in flat(now[part])]
    return lines + [f"{name}: gone" for name in gone]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", nargs="?", const=BUDGET, metavar="BUDGET", help="another budget, to compare with")
    print("\n".join(table(budget(parser.parse_args().table or BUDGET), budget())))


if __name__ == "__main__":
    main()
