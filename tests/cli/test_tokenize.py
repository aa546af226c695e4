from pathlib import Path

from cutaway import Tokenizer


def test_every_piece_with_its_id_and_place(cutaway, translator: Path):
    tokenizer = Tokenizer.open(translator)
    text = "我爱机器学习。I love it."
    encoding = tokenizer.encode(text)
    result = cutaway("tokenize", text, "-t", translator)
    assert (result.code, result.err) == (0, "")
    head, _, *rows = result.out.splitlines()
    assert f"one-hot, {tokenizer.vocab_size} long" in head
    assert [row.split()[1:6] for row in rows[:-1]] == [
        [piece, str(id), "1", "at", str(id)] for piece, id in zip(encoding.pieces, encoding.ids, strict=True)
    ]
    assert rows[-1] == f"code points: {len(text)}, bytes: {len(text.encode())}, tokens: {len(encoding.ids)}"


def test_pieces_of_a_split_character_stand_under_it_with_its_bytes(cutaway, translator: Path):
    rows = cutaway("tokenize", "龘", "-t", translator / "tokenizer.json").out.splitlines()[2:5]
    assert [row.split()[:2] for row in rows] == [["龘", "⟨E9⟩"], ["│", "⟨BE⟩"], ["└", "⟨98⟩"]]
    assert rows[0].endswith("E9 BE 98")


def test_control_tokens_in_a_text_are_text(cutaway, translator: Path):
    result = cutaway("tokenize", "</s>>>eng<<", "-t", translator)
    assert "\ufffd" not in result.out
    ids = {int(row.split()[2]) for row in result.out.splitlines()[2:-1]}
    assert not ids & Tokenizer.open(translator).controls.keys()


def test_lines_from_standard_input(cutaway, translator: Path):
    result = cutaway("tokenize", "-t", translator, given="我\n\n爱\n")
    assert result.out.count("code points") == 3
    assert "code points: 0, bytes: 0, tokens: 0" in result.out
