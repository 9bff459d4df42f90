"""What a tokenizer of `transformers` makes of texts: run by PEER_PYTHON, not by the tests.

`python peer_tokens.py PATH TEXTS` prints the tokens of each text of a JSON list. PATH is a
folder, or a `vocab.txt` of BERT with its case kept.
"""

import importlib
import json
import pathlib
import sys
from typing import Any


def main(path: str, texts: str) -> None:
    transformers: Any = importlib.import_module("transformers")
    if pathlib.Path(path).is_dir():
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    else:
        tokenizer = transformers.BertTokenizer(path, do_lower_case=False)
    print(json.dumps([tokenizer(text)["input_ids"] for text in json.loads(texts)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
