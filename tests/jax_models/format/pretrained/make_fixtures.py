"""Small checkpoints of every family, and what `transformers` makes of them in float64.

Run by an interpreter that has torch and transformers: `python make_fixtures.py` writes a
folder for each row of `CASES` beside this file. Whatever transformers computes in float32
whatever the model's type (RMSNorm, rotary tables, some softmaxes) is computed in float64;
`python make_fixtures.py unpatched` then adds the rows of transformers as it is, and
`python make_fixtures.py pairs` outputs of pairs of texts, whose second has type 1, and
`python make_fixtures.py masked` logits at each position under its mask.
"""

import importlib
import pathlib
import sys
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

torch: Any  # of the interpreter that runs this, not of the tests'
transformers: Any
FOLDER = pathlib.Path(__file__).parent / "fixtures"
N, V = 12, 20
SMALL = {
    "vocab_size": V,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "attn_implementation": "eager",
}
GPT2 = {
    "vocab_size": V,
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 24,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "attn_implementation": "eager",
}
DISTILBERT = {
    "vocab_size": V,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 24,
    "pad_token_id": 1,
    "attn_implementation": "eager",
}
ALBERT = {
    "embedding_size": 6,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "beta_fast": 2.0,
    "beta_slow": 0.2,
    "original_max_position_embeddings": 6,
}
ESM = {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 3}

# Name, class, and what its configuration says.
CASES = {
    "bert": ("BertForMaskedLM", SMALL),
    "bert_gelu_new": ("BertForMaskedLM", SMALL | {"hidden_act": "gelu_new"}),
    "bert_model": ("BertModel", SMALL),
    "bert_classifier": ("BertForSequenceClassification", SMALL | {"num_labels": 3}),
    "bert_tokens": ("BertForTokenClassification", SMALL | {"num_labels": 3}),
    "roberta": ("RobertaForMaskedLM", SMALL | {"type_vocab_size": 1}),
    "roberta_classifier": (
        "RobertaForSequenceClassification",
        SMALL | {"type_vocab_size": 1},
    ),
    "electra": ("ElectraForMaskedLM", SMALL | {"embedding_size": 6}),
    "electra_classifier": (
        "ElectraForSequenceClassification",
        SMALL | {"embedding_size": 16},
    ),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT),
    "distilbert_classifier": ("DistilBertForSequenceClassification", DISTILBERT),
    "albert": ("AlbertForMaskedLM", SMALL | ALBERT),
    "albert_classifier": ("AlbertForSequenceClassification", SMALL | ALBERT),
    "esm": ("EsmForMaskedLM", SMALL | ESM),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2_inverse_layers": (
        "GPT2LMHeadModel",
        GPT2 | {"scale_attn_by_inverse_layer_idx": True, "activation_function": "relu"},
    ),
    "llama": (
        "LlamaForCausalLM",
        SMALL
        | {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 6,
            "rope_parameters": LLAMA3,
            "attention_bias": True,
        },
    ),
    "llama_linear": (
        "LlamaForCausalLM",
        SMALL
        | {
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "linear",
                "factor": 4.0,
                "rope_theta": 100.0,
            },
        },
    ),
    "mistral": (
        "MistralForCausalLM",
        SMALL | {"num_key_value_heads": 2, "sliding_window": 4},
    ),
    "qwen2": ("Qwen2ForCausalLM", SMALL | {"num_key_value_heads": 1}),
    "qwen3": (
        "Qwen3ForCausalLM",
        SMALL
        | {
            "num_key_value_heads": 1,
            "head_dim": 6,
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
        },
    ),
    "qwen3_yarn": (
        "Qwen3ForCausalLM",
        SMALL | {"num_key_value_heads": 2, "head_dim": 8, "rope_parameters": YARN},
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        SMALL | {"num_hidden_layers": 3, "local_attention": 5},
    ),
    "modernbert_classifier": (
        "ModernBertForSequenceClassification",
        SMALL
        | {
            "num_labels": 3,
            "norm_bias": True,
            "classifier_bias": True,
            "global_attn_every_n_layers": 2,
            "local_attention": 4,
        },
    ),
    "esm1b": (
        "EsmForMaskedLM",
        SMALL
        | ESM
        | {"position_embedding_type": "absolute", "emb_layer_norm_before": True},
    ),
    "nucleotides": (
        "EsmForMaskedLM",
        SMALL | {"position_embedding_type": "absolute", "mask_token_id": 3},
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        SMALL | {"hidden_size": 32, "rotary_pct": 0.5, "rotary_emb_base": 100},
    ),
    "gpt_neox_serial": (
        "GPTNeoXForCausalLM",
        SMALL | {"use_parallel_residual": False, "hidden_act": "gelu_new"},
    ),
    "opt": ("OPTForCausalLM", SMALL | {"ffn_dim": 24}),
    "opt_post": (
        "OPTForCausalLM",
        SMALL | {"ffn_dim": 24, "do_layer_norm_before": False},
    ),
}

# Those whose families give the second text of a pair another type.
PAIRS = ("bert", "bert_classifier", "electra_classifier", "albert_classifier")
# Those whose masked passes are stored; symbol 3 is the mask.
MASKED = ("bert", "esm")


def in_float64() -> None:
    """Makes torch take every wish for float32 for one for float64."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


def draw(model: Any) -> None:
    """Numbers that float32 holds, norms near one, nothing zero."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        norm = "norm" in name.lower() or ".ln_" in name
        drawn = 0.3 * drawn + (norm and name.endswith("weight"))
        rounded = drawn.numpy().astype(np.float32).astype(np.float64)
        parameter.data.copy_(torch.from_numpy(rounded))


def run(model: Any, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Final activations of every row [b, n, d], and logits where there are some."""
    with torch.no_grad():
        out = model(torch.from_numpy(tokens), output_hidden_states=True)
    base = getattr(model, model.base_model_prefix, model)
    with torch.no_grad():
        rows = base(torch.from_numpy(tokens)).last_hidden_state
    logits = getattr(out, "logits", getattr(out, "pooler_output", None))
    return rows.numpy(), None if logits is None else logits.numpy()


def make(name: str, kind: str, said: dict) -> None:
    config = getattr(transformers, kind).config_class(**said)
    model = getattr(transformers, kind)(config).eval().double()
    draw(model)
    folder = FOLDER / name
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    with safe_open(path, framework="np") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
    save_file({name: x.astype(np.float32) for name, x in stored.items()}, path)
    allowed = np.array([x for x in range(V) if x not in (1, 3)])
    expected = references(lambda tokens: run(model, tokens), allowed)
    save_file(expected, folder / "expected.safetensors")


def add_unpatched(name: str, kind: str) -> None:
    """Writes the rows that transformers has in its own types beside the others."""
    path = FOLDER / name / "expected.safetensors"
    family = getattr(transformers, kind)
    model = family.from_pretrained(path.parent, attn_implementation="eager")
    expected = load_file(path)
    rows, _ = run(model.double().eval(), expected["tokens"][None])
    save_file(expected | {"unpatched_rows": rows[0]}, path)


def add_pairs(name: str, kind: str) -> None:
    """Writes tokens of a pair with symbol 2 behind each text, and rows and logits."""
    family, folder = getattr(transformers, kind), FOLDER / name
    model = family.from_pretrained(folder, attn_implementation="eager").double().eval()
    tokens = np.array([0, 7, 4, 9, 2, 5, 7, 11, 2])
    types = torch.from_numpy((np.arange(9) > 4).astype(np.int64)[None])
    inputs = {"input_ids": torch.from_numpy(tokens[None]), "token_type_ids": types}
    with torch.no_grad():
        logits = model(**inputs).logits[0].numpy()
        rows = getattr(model, model.base_model_prefix)(**inputs).last_hidden_state[0]
    expected = {"tokens": tokens, "rows": rows.numpy(), "logits": logits}
    save_file(expected, folder / "pairs.safetensors")


def add_masked(name: str, kind: str, said: dict) -> None:
    """Writes the logits [n, v] of each position where it alone is the mask."""
    family, folder = getattr(transformers, kind), FOLDER / name
    model = family(family.config_class(**said)).eval().double()
    draw(model)
    tokens = load_file(folder / "expected.safetensors")["tokens"]
    masked = np.where(np.eye(N, dtype=bool), 3, tokens)
    at = np.arange(N)
    with torch.no_grad():
        logits = model(torch.from_numpy(masked)).logits.numpy()[at, at]
        own = model(torch.from_numpy(tokens[None])).logits[0].numpy()
    made = {"tokens": tokens, "logits": logits, "unmasked": own}
    save_file(made, folder / "masked.safetensors")


def references(run: Any, allowed: np.ndarray) -> dict[str, np.ndarray]:
    """Tokens, rows, logits where there are some, and influences of all substitutes."""
    tokens = np.random.default_rng(0).choice(allowed, N)
    rows, logits = run(tokens[None])
    expected = {"tokens": tokens, "rows": rows[0]}
    if logits is not None:
        expected["logits"] = logits[0]
    changed, where = [], []
    for i in range(N):
        for symbol in allowed:
            if symbol != tokens[i]:
                changed.append(tokens.copy())
                changed[-1][i] = symbol
                where.append((i, symbol))
    others, _ = run(np.array(changed))
    influence = np.full((N, V), np.nan)
    influence[tuple(np.array(where).T)] = np.linalg.norm(
        others[:, -1] - rows[0, -1], axis=-1
    )
    return expected | {"influence": influence}


if __name__ == "__main__":
    torch, transformers = map(importlib.import_module, ("torch", "transformers"))
    mode = sys.argv[1] if sys.argv[1:] else ""
    if mode in ("", "masked"):
        in_float64()
    for case, row in CASES.items():
        if mode == "unpatched":
            add_unpatched(case, row[0])
        elif mode == "pairs":
            if case in PAIRS:
                add_pairs(case, row[0])
        elif mode == "masked":
            if case in MASKED:
                add_masked(case, *row)
        else:
            make(case, *row)
        print(case, flush=True)
