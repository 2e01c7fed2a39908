# SPDX-License-Identifier: Apache-2.0
"""Completion for zsh and fish, as formats of cliff's command ``complete``, which knows bash.

A format gets the words that may follow the program, and for each command, whose words are joined by
``_``, the words that may follow it: its subcommands, or its options.
"""

from __future__ import annotations

from cliff.complete import CompleteShellBase

Following = list[tuple[str, str]]


class _Table(CompleteShellBase):
    """One script with a table of what may follow each command.

    ``template``: has the places NAME, FUNCTION and TABLE; ``row``: the form of a row.
    """

    template: str
    row: str

    def get_header(self) -> str:
        """Return nothing: the script is written as a whole."""
        return ""

    def get_trailer(self) -> str:
        """Nothing: the script is written as a whole."""
        return ""

    def write(self, cmdo: str, data: Following) -> None:
        """Write the script. ``cmdo``: what may follow the program."""
        rows = [("", cmdo), *((name.replace("_", " "), words) for name, words in data)]
        table = "\n".join(self.row.format(name=name, words=words) for name, words in rows)
        text = self.template.replace("TABLE", table)
        self.output.write(
            text.replace("FUNCTION", f"_{self.escaped_name}").replace("NAME", self.name)
        )


class CompleteZsh(_Table):
    """For zsh: sourced, or as a file ``_NAME`` in a folder of ``$fpath``."""

    row = "    '{name}' '{words}'"
    template = """#compdef NAME
FUNCTION() {
  local -A following=(
TABLE
  )
  local command='' word
  for word in "${(@)words[2,CURRENT-1]}"; do
    (( ${+following[${command:+$command }$word]} )) || break
    command="${command:+$command }$word"
  done
  local proposed="${following[$command]}"
  if [[ $proposed == -* && ${words[CURRENT]} != -* ]]; then
    _files
  else
    compadd -- ${=proposed}
  fi
}
if [ "$funcstack[1]" = "FUNCTION" ]; then
  FUNCTION
else
  compdef FUNCTION NAME
fi
"""


class CompleteFish(_Table):
    """For fish: sourced, or as a file in ``~/.config/fish/completions``."""

    row = "    case '{name}'; string split ' ' -- '{words}'"
    template = """function FUNCTION_following
    switch "$argv"
TABLE
    case '*'; return 1
    end
end
function FUNCTION
    set -l command
    for word in (commandline -opc)[2..]
        FUNCTION_following $command $word >/dev/null; or break
        set -a command $word
    end
    FUNCTION_following $command
end
function FUNCTION_files
    set -l proposed (FUNCTION)
    string match -q -- '-*' "$proposed[1]"; and not string match -q -- '-*' (commandline -ct)
end
complete -c NAME -f
complete -c NAME -n FUNCTION_files -F
complete -c NAME -n 'not FUNCTION_files' -a '(FUNCTION)'
"""
