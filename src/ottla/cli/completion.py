"""`ottla completion bash|zsh|fish` prints a script with which a shell completes commands, options and their choices.

The script is generated from the argument parsers, so it matches them exactly. For values without fixed choices, such as
names of topics and files, the shell offers its default, file names.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

HOW_TO_USE = """\
To use it in this shell, and in each new one from your shell's start file:

  bash    source <(ottla completion bash)
  zsh     source <(ottla completion zsh)
  fish    ottla completion fish | source
"""


class Option(NamedTuple):
    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


class Command(NamedTuple):
    """A command or subcommand, and the words that can follow it."""

    path: str
    """The command with the program's name, such as `ottla topic create`."""
    words: dict[str, str]
    """Subcommands and choices of positional arguments, each with its help text."""
    options: tuple[Option, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HOW_TO_USE
    parser.add_argument("shell", choices=tuple(SCRIPTS))


def run(options: argparse.Namespace) -> int:
    from ottla.cli import COMMANDS, command_parser

    commands = list(commands_of(command_parser(COMMANDS)))
    print(SCRIPTS[options.shell](commands), end="")
    return 0


def commands_of(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """The parser's own command, followed by those of its subcommands."""
    words: dict[str, str] = {}
    options = []
    inner: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner += action.choices.values()
            words |= {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            options.append(_option(action))
        else:
            words |= {str(choice): "" for choice in action.choices or ()}
    yield Command(parser.prog, words, tuple(options))
    for subparser in inner:
        yield from commands_of(subparser)


def _option(action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    help_text = (action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), help_text, action.nargs != 0, choices)


def _bash(commands: list[Command]) -> str:
    return f"""\
_ottla() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" place=ottla words= index
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$place ${{COMP_WORDS[index]}}" in
            {_places(commands)}) place="$place ${{COMP_WORDS[index]}}" ;;
        esac
    done
    COMPREPLY=()
    case "$place $previous" in
{_cases(commands, lambda choices: f'words="{" ".join(choices)}"', "return")}
        *)
            case "$place" in
{_word_cases(commands)}
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ottla ottla
"""


def _zsh(commands: list[Command]) -> str:
    arrays = []
    for command in commands:
        words = " ".join(_quote(_describe(word, text)) for word, text in command.words.items())
        options = " ".join(_quote(_describe(name, option.help)) for option in command.options for name in option.names)
        arrays.append(f'        ("{command.path}") choices=({words}) flags=({options}) ;;')
    return f"""\
#compdef ottla
_ottla() {{
    local place=ottla
    local -a choices flags
    integer index
    for ((index = 2; index < CURRENT; index++)); do
        case "$place $words[index]" in
            ({_places(commands)}) place="$place $words[index]" ;;
        esac
    done
    case "$place $words[CURRENT-1]" in
{_cases(commands, lambda choices: f"compadd -- {' '.join(choices)}; return", "_files; return", opening="(")}
    esac
    case "$place" in
{chr(10).join(arrays)}
    esac
    if [[ "$words[CURRENT]" == -* ]]; then
        _describe -o option flags
    elif (( $#choices )); then
        _describe choice choices
    else
        _files
    fi
}}
if [ "$funcstack[1]" = "_ottla" ]; then _ottla "$@"; else compdef _ottla ottla; fi
"""


def _fish(commands: list[Command]) -> str:
    inner = " ".join(_quote(command.path) for command in commands[1:])
    lines = [
        "function __ottla_place",
        "    set -l place ottla",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$place $word"',
        f"            case {inner}",
        '                set place "$place $word"',
        "        end",
        "    end",
        "    echo $place",
        "end",
        "function __ottla_at",
        '    test (__ottla_place) = "$argv"',
        "end",
    ]
    for command in commands:
        start = f"complete -c ottla -n '__ottla_at {command.path}'"
        lines += [f"{start} -f -a {word} -d {_quote(text)}" for word, text in command.words.items()]
        lines += [f"{start} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = f"-x -a {_quote(' '.join(option.choices))}" if option.choices else "-r" * option.takes_value
    return " ".join(part for part in (*names, value, f"-d {_quote(option.help)}") if part)


def _places(commands: list[Command]) -> str:
    return "|".join(f'"{command.path}"' for command in commands[1:])


def _cases(commands: list[Command], offer: Callable[[tuple[str, ...]], str], leave: str, opening: str = "") -> str:
    """A case for each option that takes a value. It offers the option's choices, or else the shell's default."""
    lines = []
    for command in commands:
        for option in command.options:
            if option.takes_value:
                names = "|".join(f'"{command.path} {name}"' for name in option.names)
                lines.append(f"        {opening}{names}) {offer(option.choices) if option.choices else leave} ;;")
    return "\n".join(lines)


def _word_cases(commands: list[Command]) -> str:
    """The cases of the bash script: options are offered after a `-`, other words otherwise."""
    lines = []
    for command in commands:
        names = " ".join(name for option in command.options for name in option.names if name.startswith("--"))
        words = " ".join(command.words)
        lines.append(f'                "{command.path}") [[ $word == -* ]] && words="{names}" || words="{words}" ;;')
    return "\n".join(lines)


def _describe(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
