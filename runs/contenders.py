"""Names of methods for the scripts: every method with every drafter that it may have.

    python runs/contenders.py all model eagle3
    python runs/contenders.py tokens:0.8 model eagle3

Prints names separated by commas. The first argument selects: ``all``; ``tokens:T``, methods with
the tokens of plain decoding at temperature T; ``law:T``, methods that keep only its distribution.
The other arguments are drafters that may replace a draft model. A method that copies from the
context only on request has a further name with that setting. A method that drafts from files, or
with layers that few targets have, is left out.
"""

from collections.abc import Iterator, Sequence

import click

from draftwood.methods import method, recipes
from draftwood.methods.binding import binder
from draftwood.methods.recipe import settings_of
from draftwood.protocols import Recipe

NEURAL = ("model", "eagle3")


def named(recipe: Recipe, drafters: Sequence[str]) -> Iterator[str]:
    """Spell a method with each of these drafters."""
    sources = {source: part for source, part in recipe.drafters.items() if part in NEURAL}
    asked = {source: part for source, part in sources.items() if source not in recipe.optional}
    usable = not asked or not set(drafters).isdisjoint(asked.values())
    if usable:
        yield recipe.name
    for source in sources:
        for drafter in drafters:
            if drafter != asked.get(source):
                yield f"{recipe.name}:{binder(source)}={drafter}"
    chain = settings_of(recipe).get("chain")
    if usable and asked and "context" in recipe.drafters and chain and chain.default == "":
        yield f"{recipe.name}:chain=context"


def contenders(promise: str, drafters: Sequence[str]) -> list[str]:
    """List the names (see the module)."""
    pairs = [(recipe, method(name)) for name, recipe in recipes().items()]
    complete = [recipe for recipe, own in pairs if own.for_any_target]
    names = [name for recipe in complete for name in named(recipe, drafters)]
    if promise == "all":
        return names
    kind, _, temperature = promise.partition(":")
    if kind not in ("tokens", "law"):
        raise click.ClickException(f"{promise!r} is none of all, tokens:T and law:T")
    wanted = kind == "tokens"
    return [name for name in names if method(name).same_tokens(float(temperature)) == wanted]


@click.command()
@click.argument("promise")
@click.argument("drafters", nargs=-1)
def main(promise: str, drafters: tuple[str, ...]) -> None:
    """Print the names."""
    click.echo(",".join(contenders(promise, drafters)))


if __name__ == "__main__":
    main()
