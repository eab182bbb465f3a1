"""The commands ``python -m experiments data list``, ``get``, ``where`` and ``check``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.data import caches
from experiments.data.datasets import Dataset, Unavailable
from experiments.data.loaders import check_name, provide
from experiments.data.sources import DATASETS
from mibounds.cli.commands import Command, Failure
from mibounds.cli.terminal import progress_bar, remark, say, say_table

__all__ = ["DATA_COMMANDS"]

Names = tyro.conf.Positional[tuple[str, ...]]


@dataclass(frozen=True)
class ListDataSetsCommand(Command):
    """List the data sets: sizes, licences, citations, and which are cached.

    Attributes:
        cache: folder of the cache; if left out, MIBOUNDS_CACHE or the platform's.
        json: print JSON instead of a table.
    """

    cache: str = ""
    json: bool = False

    def run(self) -> None:
        """Print one data set per line."""
        rows = [_describe(name, each, self.cache) for name, each in DATASETS.items()]
        if self.json:
            _say_json(rows)
            return
        columns = ("name", "images", "pixels", "download", "cached", "licence", "citation")
        for row in rows:
            row["images"] = f"{row['train']} + {row['test']}"
        say_table(columns, [[row[column] for column in columns] for row in rows])


@dataclass(frozen=True)
class GetCommand(Command):
    """Fetch data sets from their public sites, or read them from a folder, and cache them.

    Attributes:
        names: of the data sets; all if left out.
        folder: with canonical files or plain arrays; nothing is fetched then.
        cache: folder of the cache; if left out, MIBOUNDS_CACHE or the platform's.
        json: print JSON instead of lines.
    """

    names: Names = ()
    folder: Annotated[str, tyro.conf.arg(name="from")] = ""
    cache: str = ""
    json: bool = False

    def run(self) -> None:
        """Cache the data sets that are not cached; with a folder, all of them."""
        rows: list[dict[str, Any]] = []
        try:
            for name in _chosen(self.names):
                with progress_bar(name) as progress:
                    path, entry = provide(
                        name,
                        self.folder or None,
                        self.cache or None,
                        again=bool(self.folder),
                        progress=progress,
                        say=remark,
                    )
                rows.append({"name": name, "path": str(path), "origin": entry.origin})
                if not self.json:
                    say(f"{name}: {entry.origin}")
        except Unavailable as error:
            raise Failure(str(error)) from error
        if self.json:
            _say_json(rows)


@dataclass(frozen=True)
class _CachedCommand(Command):
    """A command on cached data sets.

    Attributes:
        names: of the data sets; all that are cached if left out.
        cache: folder of the cache; if left out, MIBOUNDS_CACHE or the platform's.
        json: print JSON instead of lines.
    """

    names: Names = ()
    cache: str = ""
    json: bool = False


@dataclass(frozen=True)
class WhereCommand(_CachedCommand):
    """Print the path of the cache file of data sets."""

    def run(self) -> None:
        """Print one path per line."""
        paths = _cached(self.names, self.cache)
        if self.json:
            _say_json([{"name": name, "path": str(path)} for name, path in paths.items()])
            return
        for path in paths.values():
            say(str(path))


@dataclass(frozen=True)
class CheckCommand(_CachedCommand):
    """Read cached data sets and compare their checksums."""

    def run(self) -> None:
        """Print one data set per line; fail if one is damaged."""
        rows = []
        for name, path in _cached(self.names, self.cache).items():
            rows.append({"name": name, "path": str(path), "error": _check(path)})
            if not self.json:
                say(f"{name}: {rows[-1]['error'] or 'as it was cached'}")
        if self.json:
            _say_json(rows)
        damaged = [row["name"] for row in rows if row["error"]]
        if damaged:
            raise Failure(
                f"the cache of {', '.join(damaged)} is damaged; remove it "
                f"({', '.join(row['path'] for row in rows if row['error'])}) and get it again"
            )


DATA_COMMANDS: dict[str, type[Command]] = {
    "list": ListDataSetsCommand,
    "get": GetCommand,
    "where": WhereCommand,
    "check": CheckCommand,
}


def _chosen(names: tuple[str, ...]) -> Iterable[str]:
    for name in names:
        check_name(name)
    return dict.fromkeys(names) or DATASETS


def _cached(names: tuple[str, ...], cache: str) -> dict[str, Path]:
    root = caches.find_cache(cache)
    paths = {name: root / f"{name}.npz" for name in _chosen(names)}
    for name in names:
        if not paths[name].exists():
            raise ValueError(
                f"Expected a cached data set but {name} is not in {str(root)!r}; "
                f"get it with: python -m experiments data get {name}"
            )
    found = {name: path for name, path in paths.items() if path.exists()}
    if not found:
        remark(
            f"nothing is cached in {str(root)!r}; get some with: "
            "python -m experiments data get mnist"
        )
    return found


def _check(path: Path) -> str:
    """What is wrong with a cache file; "" if nothing."""
    try:
        entry = caches.read_entry(path)
        for split in caches.list_splits(entry):
            caches.read_images(path, split)
    except caches.Damaged as error:
        return f"damaged ({error})"
    return ""


def _describe(name: str, dataset: Dataset, cache: str) -> dict[str, Any]:
    path = caches.find_cache(cache) / f"{name}.npz"
    try:
        state, origin = "yes", caches.read_entry(path).origin
    except FileNotFoundError:
        state, origin = "no", ""
    except caches.Damaged:
        state, origin = "damaged", ""
    return {
        "name": name,
        "title": dataset.title,
        "train": dataset.sizes[0],
        "test": dataset.sizes[1],
        "pixels": " x ".join(map(str, dataset.shapes[0])),
        "download": dataset.download,
        "licence": dataset.licence,
        "citation": dataset.citation,
        "cached": state,
        "path": str(path),
        "origin": origin,
    }


def _say_json(rows: list[dict[str, Any]]) -> None:
    say(json.dumps(rows, indent=2, ensure_ascii=False))
