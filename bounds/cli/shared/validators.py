"""What the entries of a flag must be: some of a few words, or what a grammar reads."""

from collections.abc import Callable

from absl import flags

from bounds.numbers.notation import parse_temperature


def validate_choices(
    values: flags.FlagValues, name: str, choices: tuple[str, ...]
) -> None:
    """Refuse entries of a list flag that are not among the choices."""

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


def validate_alone(values: flags.FlagValues, name: str, word: str) -> None:
    """Refuse a word of a list flag beside other entries."""

    def check(entries: list[str] | None) -> bool:
        if entries is not None and word in entries and len(entries) > 1:
            raise flags.ValidationError(
                f"{word} stands alone, found {', '.join(entries)}"
            )
        return True

    flags.register_validator(name, check, flag_values=values)


def validate_grammar(
    values: flags.FlagValues,
    name: str,
    parse: Callable[[str], object] = parse_temperature,
) -> None:
    """Refuse a flag, or an entry of a list of them, that does not parse.

    Args:
        values: Where the flag is.
        name: Its name.
        parse: Raises `ValueError` for what it cannot read.
    """

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


def validate_named(values: flags.FlagValues, name: str, what: str) -> None:
    """Refuse the empty text as the name of a file or folder.

    Args:
        values: Where the flag is.
        name: Its name.
        what: It names, in the words of the complaint.
    """
    flags.register_validator(
        name,
        lambda text: text != "",
        f"it is empty; expected the name of {what}",
        flag_values=values,
    )
