"""The stages of commands: their panels and order in `ubert --help` and in the reference."""

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
    """A group that shows its commands in panels, one for each stage. It wraps their help at the terminal's width,
    instead of at the docstring's line ends."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands = dict(self.commands)
        self.commands = {name: commands.pop(name) for names in STAGES.values() for name in names} | commands
        stages = {name: stage for stage, names in STAGES.items() for name in names}
        for name, command in self.commands.items():
            if isinstance(command, TyperCommand):
                command.rich_help_panel = stages.get(name)
            command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
