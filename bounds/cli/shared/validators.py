"""Validators of flags: entries among a few words, or readable by a grammar."""

from collections.abc import Callable

from absl import flags

from bounds.numbers.notation import parse_temperature


def validate_choices(
    values: flags.FlagValues, name: str, choices: tuple[str, ...]
) -> None:
    """Refuses entries of a list flag that are not among the choices."""

    def check(entries: list[str] | None) -> bool:
        for entry in entries or ():
            if entry not in choices:
                raise flags.ValidationError(
                    f"{entry!r} is not one of {', '.join(choices)}"
                )
        if entries is not None and not entries:
            raise flags.ValidationError(f"name at least one of {', '.join(choices)}")
        return True

    flags.register_validator(name, check, flag_values=values)


def validate_grammar(
    values: flags.FlagValues,
    name: str,
    parse: Callable[[str], object] = parse_temperature,
) -> None:
    """Refuses a flag, or an entry of a list, for which `parse` raises ValueError."""

    def check(entry: str | list[str] | None) -> bool:
        if entry == []:
            raise flags.ValidationError("name at least one")
        try:
            for text in [entry] if isinstance(entry, str) else entry or ():
                parse(text)
        except ValueError as error:
            raise flags.ValidationError(str(error)) from error
        return True

    flags.register_validator(name, check, flag_values=values)
