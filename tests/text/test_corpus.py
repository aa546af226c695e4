import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutaway.errors import CutawayError
from cutaway.text.corpus import Pair, Report, read_documents, read_jsonl, read_lines, read_parallel, read_tsv


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(data: bytes | str, name: str = "file.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


def refused(reading: Iterator[object]) -> str:
    with pytest.raises(CutawayError) as caught:
        list(reading)
    return str(caught.value)


def test_only_a_line_feed_ends_a_line(write):
    text = "a\x85b\u2028c\u2029d\re\x0bf\x0cg\x1ch\r\nsecond\n\n last"
    assert list(read_lines(write(text))) == ["a\x85b\u2028c\u2029d\re\x0bf\x0cg\x1ch", "second", "", " last"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_last_line_may_or_may_not_end(write, end: str):
    assert list(read_lines(write("a\nb" + end))) == ["a", "b"]


def test_empty_files_have_no_lines_and_blank_ones_blank_lines(write):
    assert list(read_lines(write(b""))) == []
    assert list(read_lines(write("\n\n"))) == ["", ""]
    report = Report()
    assert list(read_documents(write("\n \n"), report=report)) == []
    assert (report.lines, report.empty) == (2, 2)


def test_a_byte_order_mark_is_skipped_but_only_at_the_start(write):
    assert list(read_lines(write("\ufeffa\n\ufeffb"))) == ["a", "\ufeffb"]


def test_utf_16_is_recognised_with_advice(write):
    for codec in ("utf-16-le", "utf-16-be"):
        mark = "\ufeff".encode(codec)
        message = refused(read_lines(write(mark + "你好\n".encode(codec)), errors="replace"))
        assert "file.txt" in message
        assert "UTF-16" in message
        assert "iconv" in message


def test_gzip_is_read_whatever_its_name(write):
    packed = gzip.compress("一\n二\n".encode())
    assert list(read_lines(write(packed, "a.gz"))) == ["一", "二"]
    assert list(read_lines(write(packed, "a.txt"))) == ["一", "二"]
    assert "damaged or cut gzip" in refused(read_lines(write(packed[:-6], "cut.gz")))
    assert "damaged or cut gzip" in refused(read_lines(write(packed[:12] + b"\xff" * 20, "bad.gz")))


def test_a_bad_byte_is_named_by_line_and_byte(write):
    path = write(b"good\n" * 4999 + b"ab\xffcd\n" + b"good\n")
    message = refused(read_lines(path))
    assert (
        f"{path}:5000: a byte that is not UTF-8 at byte 3 of the line, byte {4999 * 5 + 3} of the file"
        in message
    )

    report = Report()
    lines = list(read_lines(path, "replace", report))
    assert (lines[4999], len(lines), report.replaced, report.skipped) == ("ab\ufffdcd", 5001, 1, 0)
    report = Report()
    assert len(list(read_lines(path, "skip", report))) == 5000
    assert (report.lines, report.replaced, report.skipped) == (5001, 0, 1)
    assert [str(problem) for problem in report.problems] == [message.split(";")[0]]
    assert str(report) == "lines: 5,001, bad lines skipped: 1"


def test_a_bad_byte_after_a_mark_is_counted_from_the_start_of_the_file(write):
    assert "byte 5 of the line, byte 5 of the file" in refused(read_lines(write(b"\xef\xbb\xbfa\xff")))


def test_nul_is_bad_and_a_true_replacement_character_is_not_counted(write):
    path = write("a\ufffd\0b\n")
    assert "a NUL" in refused(read_lines(path))
    assert "byte 5 of the line" in refused(read_lines(path))
    report = Report()
    assert list(read_lines(path, "replace", report)) == ["a\ufffd\ufffdb"]
    assert report.replaced == 1


def test_surrogates_and_overlong_forms_are_bad_bytes(write):
    for data in (b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe6\x88"):
        assert "not UTF-8 at byte 1" in refused(read_lines(write(data)))


@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_a_huge_line_needs_less_than_three_times_its_size(write, errors: str):
    size = 50_000_000
    bad = b"\xff" if errors == "skip" else b""
    path = write(b"x" * (size - 1) + bad + b"\nnext\n")
    tracemalloc.start()
    lengths = [len(line) for line in read_lines(path, "skip" if errors == "skip" else "strict")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lengths == ([4] if errors == "skip" else [size - 1, 4])
    assert peak < 3 * size


def test_files_that_cannot_be_read_are_named(tmp_path: Path, write):
    write("a", "train.txt")
    assert "did you mean 'train.txt'" in refused(read_lines(tmp_path / "trian.txt"))
    assert "a folder" in refused(read_lines(tmp_path))


def test_documents_are_lines_blocks_or_the_file(write):
    path = write("one\ntwo\r\n\n \nthree\n")
    assert list(read_documents(path)) == ["one", "two", "three"]
    assert list(read_documents(path, "blank")) == ["one\ntwo", "three"]
    assert list(read_documents(path, "file")) == ["one\ntwo\n\n \nthree\n"]
    assert list(read_documents(write("no end"), "file")) == ["no end"]
    report = Report()
    assert list(read_documents(write(" \n"), "file", report=report)) == []
    assert report.empty == 1


def test_tsv_takes_its_columns_by_name(write):
    path = write('tatoeba\tHi.\t嗨。\nhsk\t"Wait!\t等等！\r\n')
    columns = ("domain", "en", "zh")
    assert list(read_tsv(path, "zh", "en", "domain", columns)) == [
        Pair("嗨。", "Hi.", "tatoeba", 1),
        Pair("等等！", '"Wait!', "hsk", 2),
    ]
    headed = write("en\tzh\nHi.\t嗨。\n")
    assert list(read_tsv(headed, "en", "zh")) == [Pair("Hi.", "嗨。", "", 2)]


def test_tsv_mistakes_are_named(write):
    path = write("a\tb\nc\nd\te\tf\ng\th\n")
    names = ("en", "zh")
    assert f"{path}:2: columns: 1, expected 2 (en, zh)" in refused(read_tsv(path, "en", "zh", columns=names))
    report = Report()
    pairs = list(read_tsv(path, "en", "zh", columns=names, errors="skip", report=report))
    assert [pair.line for pair in pairs] == [1, 4]
    assert (report.skipped, len(report.problems)) == (2, 2)
    assert "no column 'eng' (did you mean 'en'?); columns: en, zh" in refused(
        read_tsv(path, "eng", "zh", columns=names)
    )
    assert "no header" in refused(read_tsv(write(""), "en", "zh"))
    assert "two columns of one name" in refused(read_tsv(write("en\ten\n"), "en", "en"))


def test_parallel_files_stay_together(write):
    one, two = write(b"a\nb\xff\nc\n", "one"), write("A\nB\nC", "two")
    report = Report()
    pairs = list(read_parallel(one, two, "skip", report))
    assert [(pair.source, pair.target, pair.line) for pair in pairs] == [("a", "A", 1), ("c", "C", 3)]
    assert report.skipped == 1
    pairs = list(read_parallel(two, one, "skip", report))
    assert [(pair.source, pair.target) for pair in pairs] == [("A", "a"), ("C", "c")]
    assert report.skipped == 2


@pytest.mark.parametrize("longer", ["first", "second"])
def test_unequal_files_state_both_counts(write, longer: str):
    long, short = write("x\n" * 1998, "long"), write("x\n" * 1997, "short")
    files = (long, short) if longer == "first" else (short, long)
    message = refused(read_parallel(*files))
    assert f"{long}: 1,998" in message and f"{short}: 1,997" in message


def test_jsonl_gives_its_fields(write):
    path = write('{"text": "你好\\n", "n": 1}\n\n{"n": NULL}\n'.replace("NULL", "2") + '{"text": "b"}')
    report = Report()
    assert list(read_jsonl(path, ["text"], "skip", report)) == [(1, ("你好\n",)), (4, ("b",))]
    assert (report.empty, report.skipped) == (1, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": ', "not valid JSON: Expecting value (character 10)"),
        ('["text"]', "expected a JSON object, got ['text']"),
        ('{"text": 3}', "field 'text' is 3, expected a string"),
        ('{"txt": "a"}', "no field 'text' (did you mean 'txt'?); fields: txt"),
        ("{}", "no field 'text'; fields: —"),
        ('{"text": "a", "text": "b"}', "key 'text' stands there twice"),
        ('{"text": "a", "n": NaN}', "NaN is not JSON"),
        ('{"text": "\\ud800"}', "field 'text' has a lone surrogate"),
        ('{"text": ' + "[" * 10_000 + "]" * 10_000 + "}", "nested too deeply"),
        ('{"n": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_bad_json_lines_are_named(write, line: str, reason: str):
    path = write('{"text": "fine"}\n' + line + "\n")
    message = refused(read_jsonl(path, ["text"]))
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    report = Report()
    assert list(read_jsonl(path, ["text"], "skip", report)) == [(1, ("fine",))]
    assert report.skipped == 1


def test_a_bad_byte_far_into_a_long_line_is_found_at_its_place(write):
    text = "我" * 700_000  # parts of the check end within characters
    path = write(text.encode() + b"\xff")
    assert "at byte 2100001 of the line" in refused(read_lines(path))
    assert list(read_lines(write(text))) == [text]
