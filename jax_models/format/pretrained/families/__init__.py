"""The families of checkpoints that are read: a file each, and a row of this table."""

import dataclasses
from collections.abc import Callable, Mapping

from jax_models.format.pretrained.families import (
    albert,
    bert,
    distilbert,
    esm,
    gpt2,
    llama,
)
from jax_models.format.pretrained.parts import Parts

Put = Callable[[Parts, str], None]


@dataclasses.dataclass(frozen=True)
class Family:
    """How the folders of some model types are read."""

    put: Put  # everything but the head
    prefix: str  # of the base model's tensors, where there is a head
    heads: Mapping[str, Put]  # by what `head=` calls them


_BERT = {
    "masked_lm": bert.masked_lm,
    "pooler": bert.pooler,
    "classifier": bert.classifier,
    "token_classifier": bert.token_classifier,
}
_ROBERTA = _BERT | {
    "masked_lm": bert.roberta_masked_lm,
    "classifier": bert.two_maps("tanh"),
}
_ELECTRA = {
    "masked_lm": bert.electra_masked_lm,
    "discriminator": bert.discriminator,
    "classifier": bert.two_maps("gelu"),
    "token_classifier": bert.token_classifier,
}
_DISTILBERT = {
    "masked_lm": distilbert.masked_lm,
    "classifier": distilbert.classifier,
    "token_classifier": distilbert.token_classifier,
}
_ALBERT = {
    "masked_lm": albert.masked_lm,
    "pooler": albert.pooler,
    "classifier": albert.classifier,
    "token_classifier": bert.token_classifier,
}
_ESM = {
    "masked_lm": bert.roberta_masked_lm,
    "pooler": bert.pooler,
    "classifier": bert.two_maps("tanh"),
    "token_classifier": bert.token_classifier,
}
_GPT2 = {"causal_lm": gpt2.causal_lm, "classifier": gpt2.classifier}
_LLAMA = {"causal_lm": llama.causal_lm, "classifier": llama.classifier}

# By `model_type` of config.json. A new family is one file and one row here.
FAMILIES: dict[str, Family] = {
    "bert": Family(bert.put_bert, "bert.", _BERT),
    "roberta": Family(bert.put_bert, "roberta.", _ROBERTA),
    "xlm-roberta": Family(bert.put_bert, "roberta.", _ROBERTA),
    "camembert": Family(bert.put_bert, "roberta.", _ROBERTA),
    "electra": Family(bert.put_bert, "electra.", _ELECTRA),
    "distilbert": Family(distilbert.put_distilbert, "distilbert.", _DISTILBERT),
    "albert": Family(albert.put_albert, "albert.", _ALBERT),
    "esm": Family(esm.put_esm, "esm.", _ESM),
    "gpt2": Family(gpt2.put_gpt2, "transformer.", _GPT2),
    "llama": Family(llama.put_llama, "model.", _LLAMA),
    "mistral": Family(llama.put_llama, "model.", _LLAMA),
    "qwen2": Family(llama.put_llama, "model.", _LLAMA),
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

# Tensors that hold no parameter, or repeat one: how their names end.
BUFFERS = (
    "embeddings.position_ids",
    "embeddings.token_type_ids",
    "rotary_embeddings.inv_freq",
    "rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
)
# Heads that are not read, whatever is asked: how their tensors' names begin. ESM-2's
# contact head, BERT's next sentence, ALBERT's sentence order.
UNREAD = (
    "contact_head.",
    "cls.seq_relationship.",
    "sop_classifier.",
)
# Heads that a folder may hold and that were not asked for.
HEADS = (
    "cls.",
    "classifier.",
    "classifier_",
    "discriminator_predictions.",
    "generator_",
    "lm_head.",
    "pooler.",
    "pre_classifier.",
    "predictions.",
    "score.",
    "vocab_",
)
