"""`python -m minigrad.ops`: the table of ops as Markdown, made from the declarations. README.md holds a copy."""

from .table import table

if __name__ == "__main__":
    print(table())
