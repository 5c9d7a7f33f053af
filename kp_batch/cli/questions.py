"""`questions`: what a warehouse answers by name."""

from itertools import groupby

import click

from kp_batch.cli import completion, kp_batch
from kp_batch.cli.options import json_line, json_option
from kp_batch.warehouse.questions import Question
from kp_batch.warehouse.questions import questions as all_questions


class QuestionsHelp(click.Command):
    """A command whose help names the questions."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Questions, of which kp-batch questions tells more"):
            formatter.write_dl(
                [
                    (group, ", ".join(each.call for each in found))
                    for group, found in groupby(all_questions(), lambda each: each.group)
                ]
            )


@kp_batch.command()
@click.argument("name", required=False, shell_complete=completion.questions)
@json_option
def questions(name: str | None, *, as_json: bool) -> None:
    """Tell the questions that sql answers by name, or one of them, with an example of each."""
    found = [each for each in all_questions() if name in {None, each.name}]
    if not found:
        raise click.BadParameter(
            f"there is no question {name!r}; kp-batch questions tells them all", param_hint="NAME"
        )
    click.echo(json_line(found) if as_json else _text(found))


def _text(questions: list[Question]) -> str:
    return "\n".join(
        f"{group}\n"
        + "".join(f"  {each.call}\n    {each.comment}\n    {each.example}\n" for each in found)
        for group, found in groupby(questions, lambda each: each.group)
    ).rstrip("\n")
