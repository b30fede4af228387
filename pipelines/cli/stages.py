"""The order of commands, by stage: that of `ubert --help` and of the reference."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

STAGES = {
    "Collect data": ("samples", "draft", "try", "fetch", "ingest"),
    "Look at data": ("corpora", "stats", "rejects", "peek", "sql", "browse"),
    "Check data": ("duplicates", "contamination", "suspects"),
    "Mix data": ("mix", "affinity", "tune", "shard"),
    "Train and measure": ("pretrain", "evaluate", "threshold", "probe"),
    "Use a model": ("predict", "generate", "serve", "card", "pack", "export", "convert"),
    "Run on a cluster": ("submit", "jobs"),
}


class ByStage(TyperGroup):
    """Commands in the panels of their stages. Their help breaks lines at the terminal's width, not where the
    docstring does."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands = dict(self.commands)
        self.commands = {name: commands.pop(name) for names in STAGES.values() for name in names} | commands
        stages = {name: stage for stage, names in STAGES.items() for name in names}
        for name, command in self.commands.items():
            if isinstance(command, TyperCommand):
                command.rich_help_panel = stages.get(name)
            command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
