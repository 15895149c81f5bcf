"""`ottla completion bash|zsh|fish`: a script with which a shell completes commands, options and their choices.

It is made from the parsers themselves, so it knows exactly what they know. Values that can be anything, such as the
names of topics and files, are left to the shell, which offers files.
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
    """A place in the tree of commands: what can be typed there."""

    path: str
    """From the name of the program on, with spaces."""
    words: dict[str, str]
    """Subcommands and fixed choices of arguments, with their help."""
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
    """The parser's own place and, after it, those of its subcommands."""
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
        words = " ".join(_quoted(_described(word, text)) for word, text in command.words.items())
        options = " ".join(
            _quoted(_described(name, option.help)) for option in command.options for name in option.names
        )
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
    inner = " ".join(_quoted(command.path) for command in commands[1:])
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
        lines += [f"{start} -f -a {word} -d {_quoted(text)}" for word, text in command.words.items()]
        lines += [f"{start} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = f"-x -a {_quoted(' '.join(option.choices))}" if option.choices else "-r" * option.takes_value
    return " ".join(part for part in (*names, value, f"-d {_quoted(option.help)}") if part)


def _places(commands: list[Command]) -> str:
    return "|".join(f'"{command.path}"' for command in commands[1:])


def _cases(commands: list[Command], offer: Callable[[tuple[str, ...]], str], leave: str, opening: str = "") -> str:
    """A case for each option that takes a value: its choices, or whatever the shell itself offers."""
    lines = []
    for command in commands:
        for option in command.options:
            if option.takes_value:
                names = "|".join(f'"{command.path} {name}"' for name in option.names)
                lines.append(f"        {opening}{names}) {offer(option.choices) if option.choices else leave} ;;")
    return "\n".join(lines)


def _word_cases(commands: list[Command]) -> str:
    """For bash: options are offered where one was begun, or where there is nothing else."""
    lines = []
    for command in commands:
        names = " ".join(name for option in command.options for name in option.names if name.startswith("--"))
        words = " ".join(command.words)
        lines.append(f'                "{command.path}") [[ $word == -* ]] && words="{names}" || words="{words}" ;;')
    return "\n".join(lines)


def _described(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
