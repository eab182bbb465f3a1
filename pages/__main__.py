"""``python -m pages``: fill the fields of README.md and docs/, and draw the picture of README."""

from pages.fields import PAGES, fill
from pages.overview import PICTURE, draw


def main() -> None:
    """Rewrite the pages in place."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if (filled := fill(text, path.name)) != text:
            path.write_text(filled, encoding="utf-8")
            print(f"wrote {path.name}")
    draw(PICTURE)


if __name__ == "__main__":
    main()
