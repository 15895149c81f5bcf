"""`ottla completion bash|zsh|fish` prints a script with which a shell completes commands, options and names.

The script is generated from the argument parsers, so it matches them exactly. For names of topics, groups and so on it
asks the cluster through `completion_names.py`. For other values the shell offers its default, file names.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.cli.completion_names import COMPLETE, find_kind

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
    takes_name: bool = False
    """Whether the value is a name that the cluster knows."""


class Command(NamedTuple):
    """A command or subcommand, and the words that can follow it."""

    path: str
    """The command with the program's name, such as `ottla topic create`."""
    words: dict[str, str]
    """Subcommands and choices of positional arguments, each with its help text."""
    options: tuple[Option, ...]
    takes_names: bool = False
    """Whether a positional argument is a name that the cluster knows."""
    takes_files: bool = False
    """Whether a positional argument is something else, such as a file."""


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
    takes_names = takes_files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner += action.choices.values()
            words |= {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            options.append(_option(parser.prog, action))
        elif action.choices:
            words |= {str(choice): "" for choice in action.choices}
        elif find_kind(parser.prog, action):
            takes_names = True
        else:
            takes_files = True
    if takes_names:
        words.clear()  # which of them fit is decided together with the names
    yield Command(parser.prog, words, tuple(options), takes_names, takes_files)
    for subparser in inner:
        yield from commands_of(subparser)


def _option(command: str, action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    help_text = (action.help or "").replace("%%", "%")
    takes_name = bool(find_kind(command, action))
    return Option(tuple(action.option_strings), help_text, action.nargs != 0, choices, takes_name)


def _bash(commands: list[Command]) -> str:
    return f"""\
_ottla_names() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" word="$1" whole name
    whole="${{line##*[[:space:]]}}"
    while IFS= read -r name; do
        printf -v name %q "$name"
        COMPREPLY+=("${{name#"${{whole%"$word"}}"}}")
    done < <("${{COMP_WORDS[0]/#\\~/$HOME}}" {COMPLETE} "$line" 2>/dev/null </dev/null)
}}
_ottla() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" place=ottla words= index
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$place ${{COMP_WORDS[index]}}" in
            {_places(commands)}) place="$place ${{COMP_WORDS[index]}}" ;;
        esac
    done
    [[ $word == [:=] ]] && word=
    [[ $previous == = ]] && previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    COMPREPLY=()
    case "$place $previous" in
{_cases(commands, _offer_in_bash)}
        *)
            case "$place" in
{_word_cases(commands)}
            esac ;;
    esac
    COMPREPLY+=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ottla ottla
"""


def _offer_in_bash(option: Option) -> str:
    if option.takes_name:
        return '_ottla_names "$word"; return'
    return f'words="{" ".join(option.choices)}"' if option.choices else "return"


def _word_cases(commands: list[Command]) -> str:
    """The cases of the bash script: options are offered after a `-`, other words otherwise."""
    lines = []
    for command in commands:
        names = " ".join(name for option in command.options for name in option.names if name.startswith("--"))
        words = f'words="{" ".join(command.words)}"'
        otherwise = '_ottla_names "$word"' if command.takes_names else words
        lines.append(f'                "{command.path}") [[ $word == -* ]] && words="{names}" || {otherwise} ;;')
    return "\n".join(lines)


def _zsh(commands: list[Command]) -> str:
    arrays = []
    for command in commands:
        words = " ".join(_quote(_describe(word, text)) for word, text in command.words.items())
        options = " ".join(_quote(_describe(name, option.help)) for option in command.options for name in option.names)
        asks = " asks=1" if command.takes_names else ""
        arrays.append(f'        ("{command.path}") choices=({words}) flags=({options}){asks} ;;')
    return f"""\
#compdef ottla
_ottla_names() {{
    local -a names
    names=(${{(f)"$(${{~words[1]}} {COMPLETE} "${{(j: :)words[1,CURRENT-1]}} $PREFIX" 2>/dev/null </dev/null)"}})
    (( $#names )) && compadd -a names
}}
_ottla() {{
    local place=ottla asks=
    local -a choices flags
    integer index
    for ((index = 2; index < CURRENT; index++)); do
        case "$place $words[index]" in
            ({_places(commands)}) place="$place $words[index]" ;;
        esac
    done
    case "$place $words[CURRENT-1]" in
{_cases(commands, _offer_in_zsh, opening="(")}
    esac
    case "$place" in
{chr(10).join(arrays)}
    esac
    if [[ "$words[CURRENT]" == -* ]]; then
        _describe -o option flags
    elif [[ -n $asks ]]; then
        _ottla_names || _files
    elif (( $#choices )); then
        _describe choice choices
    else
        _files
    fi
}}
if [ "$funcstack[1]" = "_ottla" ]; then _ottla "$@"; else compdef _ottla ottla; fi
"""


def _offer_in_zsh(option: Option) -> str:
    if option.takes_name:
        return "_ottla_names; return"
    return f"compadd -- {' '.join(option.choices)}; return" if option.choices else "_files; return"


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
        "function __ottla_names",
        "    set -l words (commandline -opc)",
        f"    command $words[1] {COMPLETE} (commandline -cp | string collect) 2>/dev/null </dev/null",
        "end",
    ]
    for command in commands:
        start = f"complete -c ottla -n '__ottla_at {command.path}'"
        lines += [f"{start} -f -a {word} -d {_quote(text)}" for word, text in command.words.items()]
        if command.takes_names:
            lines.append(f"{start}{'' if command.takes_files else ' -f'} -a '(__ottla_names)'")
        lines += [f"{start} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    if option.takes_name:
        value = "-x -a '(__ottla_names)'"
    else:
        value = f"-x -a {_quote(' '.join(option.choices))}" if option.choices else "-r" * option.takes_value
    return " ".join(part for part in (*names, value, f"-d {_quote(option.help)}") if part)


def _places(commands: list[Command]) -> str:
    return "|".join(f'"{command.path}"' for command in commands[1:])


def _cases(commands: list[Command], offer: Callable[[Option], str], opening: str = "") -> str:
    """A case for each option that takes a value. It offers what the option takes, or else the shell's default."""
    lines = []
    for command in commands:
        for option in command.options:
            if option.takes_value:
                names = "|".join(f'"{command.path} {name}"' for name in option.names)
                lines.append(f"        {opening}{names}) {offer(option)} ;;")
    return "\n".join(lines)


def _describe(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
