from pathlib import Path

import gguf
import sentencepiece

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


def test_a_gguf_file_a_folder_with_one_and_a_lone_model_file_open(cutaway, tmp_path: Path):
    folder = tmp_path / "lone"
    folder.mkdir()
    # no tensor of it is looked at
    writer = gguf.GGUFWriter(folder / "some.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<a>", "h", "i", "hi", "Ġ"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["h i"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for name in ("lone/some.gguf", "lone"):
        result = cutaway("tokenize", "hi hi", "-t", name)
        assert result.code == 0
        assert [row.split()[2] for row in result.out.splitlines()[2:-1] if "hi" in row] == ["3", "3"]
        assert result.err.startswith("note: ")
        assert "some.gguf does not say by which rule texts are cut (tokenizer.ggml.pre)" in result.err
    (tmp_path / "spm").mkdir()
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a small text of few words\nand another one\n" * 9, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.Train(
        input=str(corpus),
        model_prefix=str(tmp_path / "spm" / "tokenizer"),
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=9,
    )
    result = cutaway("tokenize", "a small text", "-t", "spm")
    assert (result.code, result.err) == (0, "")
    assert "code points: 12, bytes: 12" in result.out
    missing = cutaway("tokenize", "a", "-t", tmp_path / "spm" / "nothing")
    assert missing.code == 2
