"""Files in, columns out; and one clear line for everything that can be wrong with a file."""

import datetime
import gzip
import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mibounds.cli._quotes import find_cells
from mibounds.cli.tables import Column, Table, check_apart, read_names, read_table, select

pa = pytest.importorskip("pyarrow", reason="CSV and Parquet files are read by pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")

CSV = b"a,b,label\n1,2.5,yes\n2,3.5,no\n3,4.5,yes\n"


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def arrow(columns, rows=None):
    stream = io.BytesIO()
    table = pa.table(columns)
    with pa.ipc.new_file(stream, table.schema) as file:
        file.write_table(table, rows)
    return stream.getvalue()


def parquet(columns, **options):
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


def json_lines(columns):
    rows = zip(*columns.values(), strict=True)
    return "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows).encode()


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


# --- what is read --------------------------------------------------------------------------------

FOUR = {"a": [1, 2, 3], "b": [2.5, 3.5, 4.5], "label": ["yes", "no", "yes"]}
SAME = {
    "data.csv": CSV,
    "bom.csv": b"\xef\xbb\xbf" + CSV,
    "dos.csv": CSV.replace(b"\n", b"\r\n"),
    "mac.csv": CSV.replace(b"\n", b"\r"),
    "semicolons.csv": CSV.replace(b",", b";"),
    "blank.csv": b"\n\n" + CSV.replace(b"\n", b"\n\n"),
    "quoted.csv": b'"a","b","label"\n"1",2.5,"yes"\n2,3.5,no\n3,4.5,"yes"\n',
    "spaces.csv": CSV.replace(b"2.5", b" 2.5 "),
    "data.tsv": CSV.replace(b",", b"\t"),
    "DATA.CSV": CSV,
    "packed.csv.gz": gzip.compress(CSV),
    "parts.CSV.GZ": gzip.compress(CSV[:20]) + gzip.compress(CSV[20:]),
    "packed.tsv.gz": gzip.compress(CSV.replace(b",", b"\t")),
    "lines.jsonl": json_lines(FOUR),
    "lines.jsonl.gz": gzip.compress(json_lines(FOUR)),
    "data.parquet": parquet(FOUR),
    "categories.parquet": parquet(FOUR, use_dictionary=True),
    "groups.parquet": parquet(FOUR, row_group_size=1),
    "data.arrow": arrow(FOUR),
    "batches.feather": arrow(FOUR, 1),
    "views.parquet": parquet({**FOUR, "label": pa.array(FOUR["label"], pa.string_view())}),
    "views.arrow": arrow({**FOUR, "label": pa.array([b"yes", b"no", b"yes"], pa.binary_view())}),
    "data.npz": npz(**{name: np.array(values) for name, values in FOUR.items()}),
    "bytes.npz": npz(
        a=np.array([1, 2, 3], ">i2"), b=[2.5, 3.5, 4.5], label=[b"yes", b"no", b"yes"]
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_table_from_every_format(tmp_path, name):
    path = write(tmp_path / name, SAME[name])
    assert read_names(path) == ["a", "b", "label"]
    table = read_table(path)
    assert table.rows == 3
    assert table.array(["a", "b"]).tolist() == [[1, 2.5], [2, 3.5], [3, 4.5]]
    assert table.array(["a"]).dtype == np.int64
    label = table.columns["label"]
    assert label.labels is not None
    assert label.discrete
    assert [label.labels[code] for code in label.values] == FOUR["label"]
    assert table.kinds(["a", "label"]) == [None, "discrete"]
    assert table.kinds(["a", "b"]) is None
    assert table.kinds(["a", "b"], discrete=["a"], continuous=["b"]) == ["discrete", "continuous"]
    assert list(read_table(path, ["label", "a"]).columns) == ["label", "a"]
    assert read_table(path, most=2).rows == 2


def test_arrays_of_an_npz_file_are_columns(tmp_path):
    emb = np.arange(12, dtype=np.float32).reshape(4, 3)
    images = np.arange(16).reshape(4, 2, 2)
    path = write(tmp_path / "data.npz", npz(emb=emb, images=images, y=np.arange(4.0)))
    names = read_names(path)
    assert names == [
        "emb.0", "emb.1", "emb.2", "images.0", "images.1", "images.2", "images.3", "y",
    ]  # fmt: skip
    table = read_table(path, select(names, "emb,images"))
    assert np.array_equal(table.array(["emb.0", "emb.1", "emb.2"]), emb)
    assert table.array(["emb.2"]).dtype == np.float32
    assert np.array_equal(table.array(select(names, "images")), images.reshape(4, 4))


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_an_npy_file_are_numbered(tmp_path, order):
    array = np.asarray(np.arange(20.0).reshape(4, 5), order=order)
    path = write(tmp_path / "data.npy", npy(array))
    assert read_names(path) == ["0", "1", "2", "3", "4"]
    assert np.array_equal(read_table(path, ["3", "1"]).array(["3", "1"]), array[:, [3, 1]])
    vector = write(tmp_path / "vector.npy", npy(np.arange(4)))
    assert read_table(vector).array(["0"]).tolist() == [[0], [1], [2], [3]]


def test_other_types_become_numbers(tmp_path):
    day = datetime.datetime(2020, 1, 1)
    columns = {
        "bool": [True, False, None],
        "date": [day.date(), None, day.date()],
        "time": [day, day, None],
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "decimal": pa.array([1, 2, None], pa.decimal128(5, 2)),
        "big": pa.array([1, 2, 2**63 + 1], pa.uint64()),
        "none": pa.nulls(3),
        "numbers": pa.array([7, 8, 7]).dictionary_encode(),
        "text": pa.array(["u", None, "v"]).dictionary_encode(),
        "bytes": [b"u", b"v", b"u"],
    }
    table = read_table(write(tmp_path / "data.parquet", parquet(columns)))
    missing = {name: int(column.missing.sum()) for name, column in table.columns.items()}
    assert missing == {
        "bool": 1, "date": 1, "time": 1, "half": 0, "decimal": 1, "big": 0, "none": 3,
        "numbers": 0, "text": 1, "bytes": 0,
    }  # fmt: skip
    assert table.kinds(list(columns)) == [
        "discrete", None, None, None, None, None, None, None, "discrete", "discrete",
    ]  # fmt: skip
    assert table.array(["numbers"]).ravel().tolist() == [7, 8, 7]
    assert table.array(["big"]).dtype == np.float64
    assert table.array(["half"]).dtype == np.float32
    arrays = npz(
        bool=np.array([True, False]),
        time=np.array(["2020-01-01", "NaT"], "M8[s]"),
        span=np.array([1, 2], "m8[h]"),
        long=np.array([1, 2], np.longdouble),
    )
    table = read_table(write(tmp_path / "data.npz", arrays))
    assert table.columns["bool"].discrete
    assert table.columns["time"].missing.tolist() == [False, True]
    assert table.array(["span"]).ravel().tolist() == [1, 2]
    assert table.array(["long"]).dtype == np.float64


def test_types_in_csv(tmp_path):
    path = write(
        tmp_path / "data.csv",
        "flag,day,plus,code,zip,quoted\n"
        'true,2020-01-01,+1,"a,b",007,"two\nlines"\n'
        'false,2020-01-02,-2,"say ""a""",008,x\n',
    )
    table = read_table(path)
    assert table.columns["flag"].discrete
    assert np.diff(table.array(["day"]).ravel()).tolist() == [1]
    assert table.array(["plus"]).ravel().tolist() == [1, -2]
    assert table.columns["code"].labels == ("a,b", 'say "a"')
    assert table.columns["quoted"].labels == ("two\nlines", "x")
    assert table.array(["zip"]).ravel().tolist() == [7, 8]


def test_text_of_numbers_is_text_where_the_file_declares_it(tmp_path):
    path = write(tmp_path / "data.parquet", parquet({"digit": ["1", "2", "1"]}))
    assert read_table(path).columns["digit"].discrete
    column = read_table(path, continuous=["digit"]).columns["digit"]
    assert column.values.tolist() == [1.0, 2.0, 1.0]
    assert not column.discrete


def test_labels_that_look_like_a_mistake_can_be_declared(tmp_path):
    path = write(tmp_path / "data.csv", "a\n1\n2\n3\nother\n")
    assert read_table(path, discrete=["a"]).columns["a"].labels == ("1", "2", "3", "other")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["1,234.5", "999", "2,000"],
            "holds numbers but row 1 holds '1,234.5'; write plain numbers",
        ),
        (
            ["12%", "7.5%", "3 %"],
            "holds numbers but row 1 holds '12%'; write plain numbers such as",
        ),
        (
            ["$5", "$1,200.50", "-$3"],
            r"holds numbers but row 1 holds '\$5'; write plain numbers such",
        ),
        (["(12.5)", "3", "4"], r"holds numbers but row 1 holds '\(12.5\)'; write plain numbers"),
        (["5 €", "6 €", "7 €"], "holds numbers but row 1 holds '5 €'; write plain numbers"),
        (["1,5", "2,5", "3"], "row 1 holds '1,5'; write a decimal point instead of the comma, or"),
        (["12/31/2020", "1/2/21", "?"], "holds dates but row 1 holds '12/31/2020'; write dates as"),
        (["31.12.2020", "1.2.2021", "x"], "holds dates but row 1 holds '31.12.2020'; write dates"),
        (["2020/12/31 10:00", "2021/1/2", "x"], "holds dates but row 1 holds '2020/12/31 10:00'"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_that_are_spelled_otherwise(tmp_path, values, message, ending):
    data = parquet({"a": values}) if ending == "parquet" else '"a"\n"' + '"\n"'.join(values) + '"\n'
    path = write(tmp_path / f"data.{ending}", data)
    with pytest.raises(ValueError, match=message) as error:
        read_table(path)
    assert "take the column as labels (--discrete a), or correct that row" in str(error.value)
    with pytest.raises(ValueError, match=message):
        read_table(path, continuous=["a"])
    assert read_table(path, discrete=["a"])["a"].labels == tuple(values)


@pytest.mark.parametrize("label", ["1.2.3", "10-20", "a5%", "v1,0", "#5", "5-10-2", "12:30"])
def test_labels_with_digits_are_labels(tmp_path, label):
    path = write(tmp_path / "data.csv", f'"a"\n"{label}"\n"x"\n"{label}"\n')
    column = read_table(path)["a"]
    assert column.labels is None or column.labels == (label, "x")


# --- quotes --------------------------------------------------------------------------------------


def walk(text, delimiters):
    """Where quoted cells begin and end, one character after the other."""
    starts, ends, line_ends, inside, k = [], [], [], False, 0
    edges = set(delimiters + "\r\n")
    while k < len(text):
        if text[k] == '"':
            if not inside and (k == 0 or text[k - 1] in edges):
                inside = True
                starts.append(k)
            elif inside and text[k + 1 : k + 2] == '"':
                k += 1
            elif inside and (k + 1 == len(text) or text[k + 1] in edges):
                inside = False
                ends.append(k)
            elif inside:
                return starts, ends, k, None
        elif text[k] in "\r\n" and not inside:
            line_ends.append(k)
        k += 1
    return starts, ends + [k] * (len(starts) - len(ends)), -1, line_ends


@settings(max_examples=400, deadline=None)
@given(st.text('"",a\n\r', max_size=24))
def test_quoted_cells_are_found(text):
    cells = find_cells(text.encode(), b",")
    starts, ends, bad, line_ends = walk(text, ",")
    assert (cells.starts.tolist(), cells.bad) == (starts, bad)
    if bad < 0:
        assert cells.ends.tolist() == ends
        assert cells.line_ends.tolist() == line_ends


QUOTED = (
    'number,size"\n1,5" pipe\n2,"6"" pipe, ""long"""\n3,""\n4,"two\nlines, with a comma"\n5,a""\n'
)


@pytest.mark.parametrize("block", [40, 41, 64, 1 << 24])
def test_quotes_inside_of_cells_are_text(tmp_path, monkeypatch, block):
    monkeypatch.setattr("mibounds.cli._arrow_formats.BLOCK", block)
    path = write(tmp_path / "data.csv", QUOTED + "".join(f"{k},x\n" for k in range(6, 40)))
    assert read_names(path) == ["number", 'size"']
    table = read_table(path)
    labels = table['size"'].labels
    shown = [labels[k] if k >= 0 else None for k in table['size"'].values]
    assert shown[:5] == ['5" pipe', '6" pipe, "long"', "", "two\nlines, with a comma", 'a""']
    assert table.rows == 39


@pytest.mark.parametrize("text", ["one,\ntwo,\nthree", "a,b\nc,d\ne", "a\nb\nc\nd"])
def test_cells_of_several_lines_are_cells(tmp_path, text):
    path = write(tmp_path / "data.csv", f'a,b\n1,"{text}"\n2,x\n')
    assert read_table(path)["b"].labels == (text, "x")


def test_stray_quotes_are_found_far_into_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("mibounds.cli._arrow_formats.BLOCK", 1 << 10)
    rows = ["a;b"] + ["1;u"] * 5000
    rows[3000], rows[3020] = '1;"u', '1;u"'
    path = write(tmp_path / "data.csv", "\n".join(rows))
    with pytest.raises(ValueError, match=r"quotes in lines 3001 and 3021 take the rows between"):
        read_table(path)


# --- some of the rows ----------------------------------------------------------------------------

LARGE = {
    "a": np.arange(5000.0),
    "b": [f'{k % 3}, "quoted"\n' if k % 50 else None for k in range(5000)],
    "c": np.where(np.arange(5000) % 10, np.arange(5000) % 7, -1),
}


def large_csv():
    out = io.BytesIO()
    pa.csv.write_csv(pa.table(LARGE), out)
    return b'"a","b","c"\n' + out.getvalue().partition(b"\n")[2]


SOME = {
    "large.parquet": lambda: parquet(LARGE, row_group_size=700),
    "large.arrow": lambda: arrow(LARGE, 700),
    "large.csv": large_csv,
    "large.csv.gz": lambda: gzip.compress(large_csv(), 1),
    "large.jsonl": lambda: json_lines({n: np.asarray(v).tolist() for n, v in LARGE.items()}),
    "large.npz": lambda: npz(a=LARGE["a"], b=np.arange(5000) % 3, c=LARGE["c"]),
    "large.npy": lambda: npy(np.stack([LARGE["a"], LARGE["c"], LARGE["c"]], 1)),
}


@pytest.mark.parametrize("small", [0, 1 << 28])
@pytest.mark.parametrize("name", SOME)
def test_some_rows_are_drawn_and_keep_their_order(tmp_path, monkeypatch, name, small):
    """Of a text file that is small as a whole, of a large one as it passes; both the same rows."""
    monkeypatch.setattr("mibounds.cli._arrow_formats.SMALL", small)
    monkeypatch.setattr("mibounds.cli._arrow_formats.BLOCK", 1 << 12)
    monkeypatch.setattr("mibounds.cli._arrow_formats.BATCH", 512)
    monkeypatch.setattr("mibounds.cli._numpy_formats.PASS", 512)
    path = write(tmp_path / name, SOME[name]())
    names = read_names(path)
    whole, some = read_table(path), read_table(path, most=1000, seed=1)
    assert (whole.rows, whole.total, some.rows, some.total) == (5000, 5000, 1000, 5000)
    rows = some.array(names[:1]).ravel().astype(int)
    assert (np.diff(rows) > 0).all()
    for column in names:  # whole rows, with all that is in them
        a, b = (table.columns[column] for table in (whole, some))
        assert (a.labels is None, a.discrete, a.dtype.kind) == (
            b.labels is None, b.discrete, b.dtype.kind,
        )  # fmt: skip
        assert a.missing[rows].tolist() == b.missing.tolist()
        if b.labels:
            there = b.values[~b.missing]
            assert [b.labels[k] for k in there] == [a.labels[k] for k in a.values[rows[~b.missing]]]
        else:
            assert np.array_equal(a.values[rows], b.values)
    assert rows.tolist() == read_table(path, most=1000, seed=1).array(names[:1]).ravel().tolist()
    assert read_table(path, most=5000).rows == 5000
    counts = np.zeros(10)
    for seed in range(20):
        drawn = read_table(path, names[:1], most=100, seed=seed).array(names[:1]).ravel()
        counts += np.histogram(drawn, 10, (0, 5000))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # chi-square with 9 degrees, 1 in 1000


def test_blocks_of_rows_stay_together(tmp_path, monkeypatch):
    monkeypatch.setattr("mibounds.cli._arrow_formats.BATCH", 33)
    path = write(tmp_path / "data.parquet", parquet({"a": np.arange(1000), "b": np.arange(1000)}))
    rows = read_table(path, ["a"], most=100, block=10).array(["a"]).ravel()
    assert len(rows) == 100
    assert np.array_equal(rows.reshape(10, 10) % 10, np.tile(np.arange(10), (10, 1)))
    assert len(set(rows // 10)) == 10


def test_arrays_of_different_lengths_are_refused_whole(tmp_path):
    path = write(tmp_path / "data.npz", npz(a=np.zeros(9), b=np.zeros(8)))
    with pytest.raises(ValueError, match=r"a has \d+, b has 8"):
        read_table(path, most=5)


PEAK = """
import sys, threading, time
import numpy, pyarrow, pyarrow.csv, pyarrow.ipc, pyarrow.parquet
from mibounds.cli import _arrow_formats
from mibounds.cli.tables import read_table

def resident():
    lines = [line.split() for line in open("/proc/self/status")]
    return next(int(line[1]) / 1024 for line in lines if line[0] == "RssAnon:")

def watch():
    while not done:
        seen.append(resident())
        time.sleep(0.001)

_arrow_formats.SMALL, _arrow_formats.BLOCK = 0, 1 << 20
seen, done = [resident()], []
thread = threading.Thread(target=watch)
thread.start()
table = read_table(sys.argv[1], most=1000)
done.append(True)
thread.join()
print(table.rows, table.total, max(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "npy"])
def test_memory_does_not_grow_with_the_file(tmp_path, ending):
    """Of 8 and of 64 MB of numbers, a thousand rows are read, each in a process of its own."""
    peaks = []
    for rows in (250_000, 2_000_000):
        table = pa.table({name: np.random.default_rng(0).normal(size=rows) for name in "abcd"})
        path = tmp_path / f"large.{ending}"
        if ending == "parquet":
            pq.write_table(table, path, row_group_size=100_000)
        elif ending == "arrow":
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table, 100_000)
        elif ending == "csv":
            csv.write_csv(table, path)
        else:
            np.save(path, np.stack([column.to_numpy() for column in table.columns], 1))
        result = subprocess.run(
            [sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True
        )
        read, total, peak = result.stdout.split()
        assert (int(read), int(total)) == (1000, rows)
        peaks.append(float(peak))
    assert peaks[1] - peaks[0] < 25


# --- which columns -------------------------------------------------------------------------------

NAMES = ["age", "pixel_0", "pixel_1", "pixel_10", "emb.0", "emb.1", "a:b", "x,y", "7", " padded"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("age", ["age"]),
        ("age, pixel_1", ["age", "pixel_1"]),
        ("pixel_0:pixel_10", ["pixel_0", "pixel_1", "pixel_10"]),
        (":pixel_0", ["age", "pixel_0"]),
        ("7:", ["7", " padded"]),
        ("pixel_*", ["pixel_0", "pixel_1", "pixel_10"]),
        ("pixel_?", ["pixel_0", "pixel_1"]),
        ("emb", ["emb.0", "emb.1"]),
        ("emb.?,age,emb", ["emb.0", "emb.1", "age"]),
        ("a:b", ["a:b"]),
        ("a:b:7", ["a:b", "x,y", "7"]),
        ("x,y", ["x,y"]),
        ("7", ["7"]),
        ("0", ["age"]),
        ("0:2", ["age", "pixel_0", "pixel_1"]),
        ("0:7", NAMES[:9]),
        (" padded", [" padded"]),
        ("*", NAMES),
    ],
)
def test_select(pattern, expected):
    assert select(NAMES, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("pixel1", "no column 'pixel1'; did you mean 'pixel_1'"),
        ("zzz", r"no column 'zzz'; the columns are age, pixel_0, .*\(10 in all\)"),
        ("10", "no column '10'"),
        ("9" * 5000, "no column"),
        ("age:zzz", "no column 'age:zzz'"),
        ("pixel_1:age", "runs backwards"),
        ("q*", r"no column matches 'q\*'"),
        ("", "commas between them but got ''"),
        ("age,", "commas between them but got 'age,'"),
        ("new\nline\x1b[31m", r"no column 'new\\nline\\x1b\[31m'"),
    ],
)
def test_select_lists_the_columns(pattern, message):
    with pytest.raises(ValueError, match=message) as error:
        select(NAMES, pattern)
    assert len(str(error.value).splitlines()) == 1


DATA = ["0.75", "0.25", "yes", "-1.5"]


@pytest.mark.parametrize("pattern", ["0", "1", "2", "1:2", ":2", "0.75,2"])
def test_numbers_are_refused_where_the_first_row_is_read_as_names(pattern):
    message = r"^column [0-2] was chosen by its number, .* data: 0.75, 0.25, yes, -1.5; put"
    with pytest.raises(ValueError, match=message):
        select(DATA, pattern)


def test_names_that_are_numbers_can_be_named():
    assert select(DATA, "0.75,yes") == ["0.75", "yes"]
    assert select(DATA, "0.25:yes") == ["0.25", "yes"]
    assert select(["0", "1", "2"], "0,1:") == ["0", "1", "2"]  # of an NPY file
    assert select(["0.0", "0.1", "1.0"], "0") == ["0.0", "0.1"]  # of arrays 0 and 1
    assert select(["2001", "place", "name"], "0") == ["2001"]  # not most of them


def test_sides_are_apart():
    check_apart({"--x": ["a"], "--y": ["b"], "--given": ["c"]})
    with pytest.raises(ValueError, match="column 'a' is in both --x and --given"):
        check_apart({"--x": ["a"], "--y": ["b"], "--given": ["a"]})


@given(st.lists(st.text(max_size=5), max_size=8), st.text(max_size=12))
def test_any_pattern_selects_known_columns_or_says_why_not(names, pattern):
    try:
        chosen = select(names, pattern)
    except ValueError as error:
        chosen, message = [], str(error)
    else:
        message = "chosen"
    assert len(message.splitlines()) == 1
    assert set(chosen) <= set(names)
    assert len(set(chosen)) == len(chosen)


# --- missing values ------------------------------------------------------------------------------


def test_missing_values_are_counted_or_dropped(tmp_path):
    path = write(tmp_path / "data.csv", "a,b\n1,x\n,y\n3,NA\nnan,z\n5,w\n")
    table = read_table(path)
    with pytest.raises(
        ValueError, match=r"in 3 of 5 rows \(column 'a': 2, first in row 2, column 'b': 1, first"
    ):
        table.complete()
    kept = table.complete(drop=True)
    assert kept.array(["a"]).ravel().tolist() == [1, 5]
    labels = kept.columns["b"].labels
    assert labels is not None
    assert [labels[code] for code in kept.columns["b"].values] == ["x", "w"]
    assert kept.complete() is kept


def test_no_more_than_three_columns_are_named():
    columns = {name: Column(np.array([1, np.nan, 2])) for name in "abcde"}
    with pytest.raises(ValueError, match="and 2 more columns"):
        Table("data.csv", columns).complete()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [np.nan] * 3, "b": [1.0, 2, 3]}, "'a' has no value in any of 3 rows"),
        ({"a": [np.nan, 1, 2], "b": [1, np.nan, 2]}, "1 of 3 rows have no missing value"),
        ({"a": [1.0, -np.inf, np.inf]}, "'a' is infinite in 2 of 3 rows, first in row 2"),
    ],
)
def test_what_dropping_rows_cannot_fix(columns, message):
    table = Table("data.csv", {name: Column(np.array(v)) for name, v in columns.items()})
    with pytest.raises(ValueError, match=message):
        table.complete(drop=True)


# --- broken files --------------------------------------------------------------------------------


def corrupted(data, seed):
    """The same number of bytes, some of them changed."""
    g = np.random.default_rng(seed)
    array = np.frombuffer(data, np.uint8).copy()
    array[g.integers(0, len(array), 8)] = g.integers(0, 256, 8)
    return array.tobytes()


def bare_zip(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return stream.getvalue()


GOOD = {
    "parquet": parquet({"a": np.arange(500.0), "b": [str(i % 7) for i in range(500)]}),
    "npz": npz(a=np.arange(500.0), b=np.arange(500)),
    "npy": npy(np.arange(500.0)),
}
BROKEN = {
    # name: (contents, message)
    "empty.csv": (b"", "empty.csv is empty"),
    "empty.parquet": (b"", "is empty"),
    "empty.npz": (b"", "is empty"),
    "newlines.csv": (b"\n\n\n", "is empty"),
    "space.csv": (b"  \n1\n2\n", "begins with an empty line"),
    "header.csv": (b"a,b\n", "holds no rows"),
    "one.csv": (b"a,b\n1,2\n", "holds one row"),
    "ragged-long.csv": (b"a,b\n1,2\n3,4,5\n6,7\n", "row 2 has 3 values but the header has 2"),
    "ragged-short.csv": (b"a,b\n1,2\n3\n6,7\n", "row 2 has 1 values but the header has 2"),
    "ragged-late.csv": (b"a,b\n" + b"1,2\n" * 50_000 + b"3\n", "row 50001 has 1 values"),
    "text.csv": (b"a,b\n1,2\n2,2\nabc,3\n", "column 'a' holds numbers but row 3 holds 'abc'"),
    "comma.tsv": (b"a\tb\n1,5\t2\n2,5\t3\n", "row 1 holds '1,5'; write a decimal point"),
    "twice.csv": (b"a,b,a\n1,2,3\n4,5,6\n", "has 2 columns named 'a'"),
    "numbers.csv": (b"1.5,2\n2.5,3\n3.5,4\n", r"begins with numbers \(1.5, 2\)"),
    "latin-header.csv": ("größe,b\n1,2\n3,4\n".encode("latin-1"), "not in UTF-8 .byte 0xf6"),
    "latin.csv": ("a,b\nü,2\nö,4\n".encode("latin-1"), "column 'a' is not in UTF-8"),
    "utf-16.csv": ("a,b\n1,2\n3,4\n".encode("utf-16"), "is in UTF-16"),
    "nul.csv": (b"a,b\n1,\x002\n3,4\n", "zero bytes, so it is not text"),
    "garbage.csv": (bytes(range(256)) * 40, "zero bytes, so it is not text"),
    "open.csv": (b'a,b\n1,2\n3,"4\n5,6\n7,8\n', "the quote in line 3 is never closed; close it"),
    "open-header.csv": (b'a,"b\n1,2\n3,4\n', "the quote in line 1 is never closed; close it"),
    "stray.csv": (
        b"a,b\n" + b"1,u\n" * 50 + b'2,"v\n' + b"1,u\n" * 98 + b'2,w"\n' + b"1,u\n" * 50,
        "the quotes in lines 52 and 151 take the rows between them for one cell; remove them",
    ),
    "strays.csv": (
        b"a,b\n" + b"1,u\n" * 50 + b'2,"v\n' + b"1,u\n" * 98 + b'2,"w\n' + b"1,u\n" * 50,
        "the quote in line 52 is closed in line 151 before more text; double quotes inside",
    ),
    "after.csv": (b'a,b\n1,"u"v\n2,w\n', "the quote in line 2 is closed in line 2 before more"),
    "line.csv": (b"a,b", "line.csv holds no rows; add some"),
    "line-and-none.csv": (b"a,b\n1,2", "holds one row"),
    "blank-line.csv": (b"\n\na,b", "holds no rows"),
    "places.arrow": (
        arrow(FOUR).replace(*(np.int32([0, 3, end, 8]).tobytes() for end in (5, 1 << 30))),
        "damaged or not an Arrow file: In column 2: Invalid: Offset invariant failure",
    ),
    "interval.arrow": (
        arrow({"a": pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval())}),
        "column 'a' holds month_day_nano_interval; save numbers or text",
    ),
    "wide-field.csv": (b"a" * 200_000 + b",b\n1,2\n3,4\n", "damaged or not a CSV file"),
    "all-parquet.csv": (GOOD["parquet"], "looks like a Parquet file; rename it to all-parquet.pa"),
    "all-npz.csv": (GOOD["npz"], "looks like an NPZ or another zip file; rename it"),
    "all-npy.tsv": (GOOD["npy"], "looks like an NPY file; rename it to all-npy.npy"),
    "really-npz.npy": (GOOD["npz"], "looks like an NPZ or another zip file"),
    "really-npy.npz": (GOOD["npy"], "looks like an NPY file"),
    "text.csv.gz": (CSV, "is damaged or not a gzip file: Not a gzipped file"),
    "cut.csv.gz": (gzip.compress(CSV)[:-9], "damaged or not a gzip file: Compressed file ended"),
    "late.csv.gz": (
        gzip.compress(b"a,b\n" + b"1,2\n" * 40_000)[:-9], "damaged or not a CSV file: Compressed",
    ),
    "sum.csv.gz": (gzip.compress(CSV)[:-8] + bytes(8), "damaged or not a gzip file: CRC check"),
    "really-npz.csv.gz": (gzip.compress(GOOD["npz"]), "or another zip file; unpack it first"),
    "array.npy.gz": (gzip.compress(GOOD["npy"]), "ends in '.npy.gz'; save it as one of"),
    "list.jsonl": (b"[1, 2]\n[3, 4]\n", "damaged or not a file of JSON lines"),
    "cut.jsonl": (b'{"a": 1}\n{"a": 2', "damaged or not a file of JSON lines"),
    "nested.jsonl": (b'{"a": [1]}\n{"a": [2]}\n', "column 'a' holds list<.*>; save one number"),
    "packed.csv": (b"\x1f\x8b" + bytes(50), "looks like a gzip file; unpack it"),
    "really-csv.parquet": (CSV, "is not a Parquet file; it looks like text"),
    "really-csv.npz": (CSV, "is not an NPZ file; it looks like text"),
    "garbage.npy": (bytes(range(256)), "is not an NPY file; write it again as one$"),
    "table.xlsx": (b"PK", "ends in '.xlsx'; save it as one of .csv, .tsv, .csv.gz, .tsv.gz"),
    "none": (CSV, "ends in ''; save it as one of"),
    "short.parquet": (GOOD["parquet"][:-30], "damaged or not a Parquet file"),
    "tiny.parquet": (b"PAR1", "damaged or not a Parquet file"),
    "one.parquet": (parquet({"a": [1.0]}), "holds one row"),
    "none.parquet": (parquet({"a": pa.array([], pa.float64())}), "holds no rows"),
    "no-text.parquet": (parquet({"a": pa.array([], pa.string())}), "holds no rows"),
    "no-columns.parquet": (parquet({}), "has no columns"),
    "lists.parquet": (parquet({"a": [[1, 2], [3]]}), "column 'a' holds list<.*>; save one number"),
    "bytes.parquet": (parquet({"a": [b"\xff", b"u"]}), "column 'a' is not in UTF-8"),
    "fixed.parquet": (parquet({"a": pa.array([b"12", b"34"], pa.binary(2))}), "holds fixed"),
    "short.npz": (GOOD["npz"][:-30], "damaged or not an NPZ file"),
    "no-arrays.npz": (bare_zip(readme_txt=b"hello"), "holds no arrays"),
    "bad-array.npz": (bare_zip(a_npy=b"hello"), "damaged or not an NPZ file"),
    "cut-array.npz": (bare_zip(a_npy=GOOD["npy"][:-8]), "is cut off: an array of shape .500,."),
    "lengths.npz": (npz(a=np.zeros(3), b=np.zeros(4)), "rows: a has 3, b has 4; choose arrays of"),
    "widths.npz": (
        npz(x=np.zeros((5, 4)), w=np.zeros((5, 2)), y=np.zeros(4)),
        "the arrays differ in their numbers of rows: x has 5, y has 4, w has 5; choose arrays of",
    ),
    "many.npz": (
        npz(**{f"a{k}": np.zeros(3 + (k == 8)) for k in range(9)}),
        r"rows: a0 has 3, a8 has 4, a1 has 3, a2 has 3, ... \(9 in all\); choose",
    ),
    "scalar.npz": (npz(a=np.float64(3)), "'a' is a single value"),
    "complex.npz": (npz(a=np.zeros(3, complex)), "'a' holds complex numbers"),
    "hollow.npz": (npz(a=np.zeros((3, 0))), "'a' has shape .3, 0., which holds no values"),
    "latin.npz": (npz(a=np.array([b"\xff", b"u"])), "column 'a' is not in UTF-8"),
    "text.npz": (npz(a=np.array(["1", "2", "x"])), "row 3 holds 'x'"),
    "objects.npy": (npy(np.array([1, "a"], object), allow_pickle=True), "holds Python objects"),
    "fields.npy": (npy(np.zeros(3, [("a", float), ("b", int)])), "holds named fields"),
    "letters.npy": (b"\x93NUMPY\x03\x00" + GOOD["npy"][8:], "holds an array with named fields"),
    "short.npy": (GOOD["npy"][:-8], "is cut off"),
    "claims.npy": (
        GOOD["npy"].replace(b"(500,), }   ", b"(500000000,)}"), "is cut off",
    ),
    "header.npy": (GOOD["npy"][:20], "damaged or not an NPY file"),
    "scalar.npy": (npy(np.float64(3)), "the array is a single value"),
    "one.npy": (npy(np.zeros(1)), "holds one row"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gets_one_clear_line(tmp_path, name):
    contents, message = BROKEN[name]
    with pytest.raises(ValueError, match=message) as error:
        read_table(write(tmp_path / name, contents))
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 300


def test_paths_that_are_not_files(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.csv is a folder"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "missing.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is a device or a pipe"):
        read_table(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="cannot be read: File name too long"):
        read_table(tmp_path / ("a" * 300 + ".csv"))


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = write(tmp_path / "data.csv", CSV)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(ValueError, match=r"data\.csv cannot be read: Permission denied"):
        read_table(path)


def test_an_unknown_column_is_named(tmp_path):
    path = write(tmp_path / "data.csv", CSV)
    with pytest.raises(ValueError, match=r"data\.csv: there is no column 'labl'; did you mean 'l"):
        read_table(path, ["labl"])


def test_pickles_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    array = np.array([Bomb(), Bomb()], object)
    for name, data in (
        ("data.npy", npy(array, allow_pickle=True)),
        ("data.npz", npz(x=array, y=np.arange(2))),
    ):
        path = write(tmp_path / name, data)
        read_names(path)
        with pytest.raises(ValueError, match="holds Python objects, which are not read"):
            read_table(path)
    assert not (tmp_path / "executed").exists()
    assert read_table(tmp_path / "data.npz", ["y"]).rows == 2


def test_a_huge_header(tmp_path):
    names = [f"column_{i}" for i in range(100_000)]
    row = ",".join(["1.5"] * len(names))
    path = write(tmp_path / "data.csv", "\n".join([",".join(names), row, row, row]))
    assert read_names(path) == names
    assert select(names, "column_99998:")[-1] == "column_99999"
    assert read_table(path, ["column_7", "column_99999"]).rows == 3
    with pytest.raises(ValueError, match=r"did you mean .*\(100000 in all\)"):
        select(names, "colum_7")


def test_rows_and_headers_longer_than_can_be_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("mibounds.cli._arrow_formats.BLOCK", 1 << 10)
    with pytest.raises(ValueError, match="begins with a line of over"):
        read_table(write(tmp_path / "header.csv", "a," * 2000 + "\n1\n"))
    with pytest.raises(ValueError, match="has a row of over"):
        read_table(write(tmp_path / "row.csv", "a,b\n1,2\n3," + "4" * 3000 + "\n5,6\n"))


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("data.csv", "data.parquet"):
        with pytest.raises(ImportError, match=r"pip install 'mibounds\[tables\]'"):
            read_table(write(tmp_path / name, SAME[name]))
    assert read_table(write(tmp_path / "data.npz", SAME["data.npz"])).rows == 3


def test_out_of_memory_is_reported(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("numpy.load", fail)
    with pytest.raises(ValueError, match="do not fit into memory"):
        read_table(write(tmp_path / "data.npy", GOOD["npy"]))


# --- claims --------------------------------------------------------------------------------------


def header(shape, dtype="|u1", version=1):
    """That of an array, with no values after it."""
    stream = io.BytesIO()
    write = {1: np.lib.format.write_array_header_1_0, 2: np.lib.format.write_array_header_2_0}
    write[version](stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def claiming(packing, shape):
    """An NPZ file whose array is said to unpack to 4 GB, and is only a header."""
    stream = io.BytesIO()
    data = header(shape)
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr("a.npy", data)
    size, claimed = (value.to_bytes(4, "little") for value in (len(data), (1 << 32) - 2))
    return stream.getvalue().replace(size, claimed)


def packed(array):
    stream = io.BytesIO()
    np.savez_compressed(stream, a=array)
    return stream.getvalue()


CUT, WIDE = "is cut off: an array of shape", "holds over 1000000 columns"
CLAIMS = {
    "wide.npz": (lambda: claiming(zipfile.ZIP_DEFLATED, (2, 2_000_000_000)), CUT),
    "long.npz": (lambda: claiming(zipfile.ZIP_DEFLATED, (2_000_000_000, 2)), CUT),
    "stored.npz": (
        lambda: claiming(zipfile.ZIP_STORED, (2, 2_000_000_000)), "damaged or not an NPZ file",
    ),
    "bzip2.npz": (lambda: claiming(zipfile.ZIP_BZIP2, (2, 9)), "that numpy has not packed; write"),
    "zeros.npz": (lambda: packed(np.zeros((2, 20_000_000), np.uint8)), WIDE),
    "below.npz": (lambda: bare_zip(a_npy=header((-2, -500)) + bytes(2000)), CUT),
    "below.npy": (lambda: header((-2, 5)), CUT),
    "long.npy": (lambda: header((2_000_000_000, 2)), CUT),
    "title.npy": (
        lambda: b"\x93NUMPY\x02\x00" + (1 << 26).to_bytes(4, "little") + b" " * (1 << 26),
        "damaged or not an NPY file",
    ),
    "text.npy": (lambda: header((10**12,), "<U0"), "which holds no values"),
}  # fmt: skip


def traced(call, *arguments, **options):
    """What a call returns or raises, and how many bytes it had at most, in Python and numpy."""
    tracemalloc.start()
    try:
        result = call(*arguments, **options)
    except ValueError as error:
        result = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return result, peak


@pytest.mark.parametrize("name", CLAIMS)
def test_what_a_file_claims_takes_no_memory(tmp_path, name):
    make, message = CLAIMS[name]
    path = write(tmp_path / name, make())
    error, peak = traced(read_table, path)
    assert message in str(error)
    assert peak < 4_000_000


def test_columns_of_all_arrays_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("mibounds.cli._numpy_formats.MOST_COLUMNS", 10)
    path = write(tmp_path / "data.npz", npz(a=np.zeros((2, 6)), b=np.zeros((2, 4))))
    assert len(read_names(path)) == 10
    path = write(tmp_path / "data.npz", npz(a=np.zeros((2, 6)), b=np.zeros((2, 5))))
    with pytest.raises(ValueError, match=r"data\.npz holds over 10 columns, .*; save samples as"):
        read_names(path)


def test_an_empty_file_of_two_gigabytes(tmp_path):
    path = write(tmp_path / "data.npy", header((2, 1_000_000_000)))
    os.truncate(path, 2_100_000_000)  # takes no room on the disk
    error, peak = traced(read_names, path)
    assert WIDE in str(error)
    assert peak < 4_000_000


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_unpacked_in_parts(tmp_path, monkeypatch, order):
    monkeypatch.setattr("mibounds.cli._numpy_formats.BUFFER", 1 << 20)
    array = np.zeros((2_000_000, 8), np.uint8, order=order)
    array[:, 1] = np.arange(len(array)) % 251
    path = write(tmp_path / "data.npz", packed(array))
    table, peak = traced(read_table, path, ["a.1"], most=1000)
    assert peak < 8_000_000  # of 16
    assert np.isin(table.array(["a.1"]), array[:, 1]).all()
    assert len(np.unique(table.array(["a.1"]))) > 200


@pytest.mark.parametrize("shape", [(7,), (7, 4), (7, 4, 3), (7, 1, 5, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", ">i2", "U3", "?"])
def test_arrays_are_unpacked_as_numpy_does(tmp_path, monkeypatch, shape, order, dtype):
    monkeypatch.setattr("mibounds.cli._numpy_formats.BUFFER", 100)
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape).astype(dtype), order=order)
    path = write(tmp_path / "data.npz", npz(a=array))
    names = read_names(path)[::-1]
    for most in (None, 5):
        table = read_table(path, names, most=most, discrete=names)
        flat = array.reshape(7, -1)[:, ::-1]
        for k, name in enumerate(names):
            values, labels = table[name].values, table[name].labels
            found = (values if labels is None else np.array(labels)[values]).tolist()
            expected = flat[:, k].astype(found[0].__class__).tolist()
            assert found == expected if most is None else set(found) <= set(expected)


def test_values_are_checked_by_their_sum(tmp_path):
    data = bytearray(npz(a=np.arange(500.0)))
    data[2000] ^= 1
    with pytest.raises(ValueError, match=r"damaged or not an NPZ file: Bad CRC-32.*; write it ag"):
        read_table(write(tmp_path / "data.npz", bytes(data)))


# --- any file at all -----------------------------------------------------------------------------


def read_or_refuse(path):
    """Read the whole file; an error must be one line."""
    try:
        names = read_names(path)
        table = read_table(path)
        table.array(names)
        table.complete(drop=True)
    except ValueError as error:
        message = str(error)
    else:
        message = "read"
    assert len(message.splitlines()) == 1


ENDINGS = (".csv", ".tsv", ".parquet", ".npz", ".npy")
HEADS = (b"", b"PAR1", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"a,b\n")
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(st.sampled_from(ENDINGS), st.sampled_from(HEADS), st.binary(max_size=200))
def test_any_bytes(tmp_path, ending, head, data):
    read_or_refuse(write(tmp_path / f"data{ending}", head + data))


@quick
@given(st.lists(st.lists(st.text('abc019.,"\n\r;- \tén', max_size=4), max_size=4), max_size=6))
def test_any_text(tmp_path, rows):
    read_or_refuse(write(tmp_path / "data.csv", "\n".join(",".join(row) for row in rows)))


@quick
@given(st.sampled_from(list(GOOD)), st.integers(0, 2**32), st.integers(0, 6000))
def test_any_damage(tmp_path, kind, seed, length):
    read_or_refuse(write(tmp_path / f"data.{kind}", corrupted(GOOD[kind], seed)))
    read_or_refuse(write(tmp_path / f"data.{kind}", GOOD[kind][:length]))


# --- size ----------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
import numpy, pyarrow.csv, pyarrow.parquet
from mibounds.cli.tables import read_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = read_table(sys.argv[1], ["c3", "c17"])
table.array(["c3", "c17"])
print(table.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_parquet_file_is_read_by_the_column(tmp_path):
    rows, columns = 200_000, 40  # 64 MB, of which 3.2 are wanted
    g = np.random.default_rng(0)
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({f"c{i}": g.normal(size=rows) for i in range(columns)}), path)
    assert path.stat().st_size > 50e6
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    read, kilobytes = map(int, result.stdout.split())
    unit = 1 if sys.platform != "darwin" else 1024
    assert read == rows
    assert kilobytes / unit < 40_000
