"""The supported families of checkpoints, `FAMILIES`; each family has a file."""

from jax_models.format.pretrained.families.albert import ALBERT
from jax_models.format.pretrained.families.bert import BERT, ELECTRA, ROBERTA
from jax_models.format.pretrained.families.distilbert import DISTILBERT
from jax_models.format.pretrained.families.esm import ESM
from jax_models.format.pretrained.families.family import Family
from jax_models.format.pretrained.families.gpt2 import GPT2
from jax_models.format.pretrained.families.gpt_neox import GPT_NEOX
from jax_models.format.pretrained.families.llama import LLAMA
from jax_models.format.pretrained.families.modernbert import MODERNBERT
from jax_models.format.pretrained.families.opt import OPT

# By `model_type` of config.json. A new family is one file and one row here.
FAMILIES: dict[str, Family] = {
    "bert": BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ROBERTA),
    "electra": ELECTRA,
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "esm": ESM,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "opt": OPT,
    "modernbert": MODERNBERT,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), LLAMA),
}

# The head of a class in `architectures`, by the first of these that its name ends in.
ARCHITECTURES = {
    "ElectraForPreTraining": "discriminator",
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "masked_lm",
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
    "Model": "none",
}

# Prefixes of tensor names of all heads, also of those that are not supported, such as BERT's
# next sentence and ALBERT's order of sentences.
HEADS = tuple(
    "cls. classifier. classifier_ decoder. discriminator_predictions. embed_out. "
    "generator_ head. lm_head. multiple_choice_head. pooler. pre_classifier. predictions. "
    "qa_outputs. score. sequence_summary. sop_classifier. v_head. vocab_".split()
)
