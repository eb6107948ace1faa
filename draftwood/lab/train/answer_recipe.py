"""Settings of the answers that a chat model gives to training prompts."""

from dataclasses import dataclass

from draftwood.protocols import setting
from draftwood.protocols.settings import Part


@dataclass(frozen=True)
class AnswerRecipe(Part):
    """Settings of answers; every second prompt is answered greedily."""

    max_new_tokens: int = setting(256, "Most tokens of an answer.", least=1)
    temperature: float = setting(0.8, "Temperature of the sampled answers.", least=0)
    top_p: float = setting(0.95, "Nucleus of the sampled answers.", above=0, most=1)
    seed: int = setting(1, "Seed of the sampled answers.", least=0)
    shard: int = setting(256, "Prompts per file, the unit of resuming.", least=1)
