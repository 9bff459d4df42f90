"""The supported families of checkpoints, `FAMILIES`; each family has a file."""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from jax_models.format.pretrained.families import (
    albert,
    bert,
    distilbert,
    esm,
    gpt2,
    gpt_neox,
    llama,
    modernbert,
    opt,
)
from jax_models.format.pretrained.parts import Parts

Put = Callable[[Parts, str], None]


@dataclasses.dataclass(frozen=True)
class Family:
    """Functions and names of tensors, without the base model's prefix, of model types."""

    put: Put  # everything but the head
    heads: Mapping[str, Put]  # functions that add a head, by its name (`head=`)
    body: tuple[str, ...]  # first parts of the base model's tensor names
    embedding: str  # the tensor that a decoder may be tied to
    decoder: str  # the tensor that maps rows to logits of symbols
    # Names of stored tensors that are not needed; # stands for a number.
    left_behind: tuple[str, ...] = ()
    tied: bool = True  # default: whether the decoder is the embedding

    def find_prefix(self, names: Iterable[str]) -> str:
        """Most frequent prefix of the base model's tensor names, as "bert."; may be empty."""
        parts = "|".join(map(re.escape, self.body))
        pattern = re.compile(rf"((?:\w+\.)*?)(?:{parts})\.")
        found = Counter(m[1] for m in map(pattern.match, names) if m)
        return max(found, key=lambda prefix: (found[prefix], prefix), default="")


_BERT = {
    "masked_lm": bert.masked_lm,
    "pooler": bert.pooler,
    "classifier": bert.classifier,
    "token_classifier": bert.token_classifier,
}
_ROBERTA = _BERT | {
    "masked_lm": bert.roberta_masked_lm,
    "classifier": bert.head_of("classifier.dense", "tanh", "classifier.out_proj"),
}
_ELECTRA = {
    "masked_lm": bert.electra_masked_lm,
    "discriminator": bert.discriminator,
    "classifier": bert.head_of("classifier.dense", "gelu", "classifier.out_proj"),
    "token_classifier": bert.token_classifier,
}
_DISTILBERT = {
    "masked_lm": distilbert.masked_lm,
    "classifier": bert.head_of("pre_classifier", "relu", "classifier"),
    "token_classifier": bert.token_classifier,
}
_ALBERT = _BERT | {
    "masked_lm": albert.masked_lm,
    "pooler": bert.head_of("{}pooler", "tanh"),
    "classifier": bert.head_of("{}pooler", "tanh", "classifier"),
}
_DECODER = {"causal_lm": gpt2.causal_lm, "classifier": gpt2.classifier}

_WORDS = "embeddings.word_embeddings.weight"
_ENCODER = ("embeddings", "encoder", "pooler")
_POSITIONS = ("embeddings.position_ids", "embeddings.token_type_ids")
_Of = functools.partial(Family, body=_ENCODER, embedding=_WORDS, left_behind=_POSITIONS)
_BERT_FAMILY = _Of(bert.put_bert, _BERT, decoder="cls.predictions.decoder.weight")
_ROBERTA_FAMILY = _Of(bert.put_bert, _ROBERTA, decoder="lm_head.decoder.weight")
_LLAMA_FAMILY = Family(
    llama.put_llama,
    _DECODER,
    body=("embed_tokens", "layers", "norm", "rotary_emb"),
    embedding="embed_tokens.weight",
    decoder="lm_head.weight",
    left_behind=tuple(
        f"{place}rotary_emb.{name}"
        for place in ("", "layers.#.self_attn.")
        for name in ("inv_freq", "original_inv_freq", "cos_cached", "sin_cached")
    ),
    tied=False,
)

# By `model_type` of config.json. A new family is one file and one row here.
FAMILIES: dict[str, Family] = {
    "bert": _BERT_FAMILY,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA_FAMILY),
    "electra": _Of(
        bert.put_bert,
        _ELECTRA,
        body=(*_ENCODER, "embeddings_project"),
        decoder="generator_lm_head.weight",
    ),
    "distilbert": _Of(
        distilbert.put_distilbert,
        _DISTILBERT,
        body=("embeddings", "transformer.layer"),
        decoder="vocab_projector.weight",
    ),
    "albert": _Of(albert.put_albert, _ALBERT, decoder="predictions.decoder.weight"),
    # Where positions are rotary, files have a table all the same.
    "esm": _Of(
        esm.put_esm,
        _ROBERTA,
        body=(*_ENCODER, "contact_head"),
        decoder="lm_head.decoder.weight",
        left_behind=(
            *_POSITIONS,
            "embeddings.position_embeddings.weight",
            "encoder.layer.#.attention.self.rotary_embeddings.inv_freq",
            "rotary_embeddings.inv_freq",
            "contact_head.regression.weight",
            "contact_head.regression.bias",
        ),
    ),
    "gpt2": Family(
        gpt2.put_gpt2,
        _DECODER,
        body=("wte", "wpe", "h", "ln_f"),
        embedding="wte.weight",
        decoder="lm_head.weight",
        left_behind=gpt2.LEFT_BEHIND,
    ),
    "gpt_neox": Family(
        gpt_neox.put_gpt_neox,
        _DECODER,
        body=("embed_in", "layers", "final_layer_norm"),
        embedding="embed_in.weight",
        decoder="embed_out.weight",
        left_behind=gpt_neox.LEFT_BEHIND,
        tied=False,
    ),
    "opt": Family(
        opt.put_opt,
        _DECODER,
        body=("embed_tokens", "embed_positions", "layers", "final_layer_norm"),
        embedding="embed_tokens.weight",
        decoder="lm_head.weight",
    ),
    "modernbert": Family(
        modernbert.put_modernbert,
        {
            "masked_lm": modernbert.masked_lm,
            "classifier": modernbert.classifier,
            "token_classifier": modernbert.token_classifier,
        },
        body=("embeddings", "layers", "final_norm"),
        embedding="embeddings.tok_embeddings.weight",
        decoder="decoder.weight",
    ),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA_FAMILY),
}

# The head of a class in `architectures`, by how its name ends; none of another.
ARCHITECTURES = {
    "ElectraForPreTraining": "discriminator",
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "masked_lm",
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
}

# Prefixes of tensor names of all heads, also of those that are not supported, such as BERT's
# next sentence and ALBERT's order of sentences.
HEADS = tuple(
    "cls. classifier. classifier_ decoder. discriminator_predictions. embed_out. "
    "generator_ head. lm_head. multiple_choice_head. pooler. pre_classifier. predictions. "
    "qa_outputs. score. sequence_summary. sop_classifier. v_head. vocab_".split()
)
