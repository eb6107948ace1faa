"""Settings of a benchmark run, checked before anything is read or loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from draftwood.errors import DraftwoodError
from draftwood.files import encode
from draftwood.lab.bench.best import Best
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.sources import Source
from draftwood.methods.recipe import Method
from draftwood.methods.shipped import check_drafts
from draftwood.models import Loaded, load_quietly
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import SamplingParams


@dataclass(frozen=True)
class Settings:
    """Settings of a run; recorded in its provenance.

    A field is the option of ``draftwood bench`` of that name, where nothing else is said here.

    Attributes:
        methods: contenders, as the user wrote them.
        best: best settings; searched methods are run as published and at their best setting.
        threads: torch's threads; None leaves them unchanged.
        sampling: sampling parameters; the seed is replaced for each prompt.
        seeds: every (method, prompt, repeat) is run with each seed; prompt i is sampled with the
            seed plus i. The first seed also shuffles the order of methods.
        budget, draft, head, warm: see :class:`draftwood.lab.bench.defaults.Defaults`.
        chat, truncate: see :class:`draftwood.lab.bench.contexts.Contexts`.

    Raises:
        DraftwoodError: a seed is out of range or named twice.
    """

    prompts: tuple[Source, ...]
    methods: tuple[str, ...]
    best: Best | None = None
    peers: bool = False
    limit: int | None = None
    model: str = "embedded"
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    threads: int | None = None
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seeds: tuple[int, ...] = (0,)
    budget: int | None = None
    draft: str | None = None
    head: str | None = None
    warm: bool = False
    batch: int = 1
    repeats: int = 1
    chat: bool | None = None
    truncate: int | None = None

    def __post_init__(self) -> None:
        for seed in self.seeds:
            if not 0 <= seed < SEED_LIMIT:
                raise DraftwoodError(f"seed {seed} is out of range: give integers in [0, 2**64)")
            if self.seeds.count(seed) > 1:
                raise DraftwoodError(f"seed {seed} is named twice: leave one out")

    @property
    def contenders(self) -> tuple[str, ...]:
        """The methods; searched ones at both of their settings."""
        return self.methods if self.best is None else self.best.contenders(self.methods)

    @property
    def defaults(self) -> Defaults:
        """Default settings of contenders."""
        return Defaults(self.budget, self.draft, self.head, self.warm)

    def recorded(self) -> dict[str, object]:
        """Settings in JSON types; ``sampling`` without its seed, which is not used."""
        changed = {
            "prompts": [str(source) for source in self.prompts],
            "sampling": {k: v for k, v in vars(self.sampling).items() if k != "seed"},
            "best": None if self.best is None else self.best.recorded(self.methods),
        }
        found: dict[str, object] = encode({**vars(self), **changed})
        return found

    def load(self, methods: Mapping[str, Method]) -> Loaded:
        """Load the model.

        Args:
            methods: that will decode with it, by their spelling.

        Raises:
            DraftwoodError: it cannot be loaded, or a method needs a draft model of its vocabulary.
        """
        check_drafts(self.model, methods, trust_remote_code=self.trust_remote_code)
        return load_quietly(
            self.model,
            self.dtype,
            self.device,
            self.threads,
            trust_remote_code=self.trust_remote_code,
        )
